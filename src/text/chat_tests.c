/* Tests ("is ..."). */
#include "config.h"
#include "text/chat_ops.h"

#include <string.h>

#define TEST(name, condition) \
    static rkv_status name(jctx *c, const jval *self, const jargs *a, jval *out) \
    { \
        (void)c, (void)a; \
        *out = rkv_j_bool(condition); \
        return RKV_OK; \
    }
TEST(t_defined, self->kind != J_UNDEFINED)
TEST(t_undefined, self->kind == J_UNDEFINED)
TEST(t_none, self->kind == J_NONE)
TEST(t_boolean, self->kind == J_BOOL)
TEST(t_true, self->kind == J_BOOL && self->i)
TEST(t_false, self->kind == J_BOOL && !self->i)
TEST(t_integer, self->kind == J_INT)
TEST(t_float, self->kind == J_FLOAT)
TEST(t_number, rkv_j_is_number(self))
TEST(t_string, self->kind == J_STRING)
TEST(t_mapping, self->kind == J_DICT)
TEST(t_iterable, rkv_j_is_iterable(self) || self->kind == J_LOOP)
TEST(t_escaped, self->kind == J_STRING && self->safe)
TEST(t_filter, self->kind == J_STRING && rkv_j_filter(self->s, self->n))
TEST(t_test, self->kind == J_STRING && rkv_j_test(self->s, self->n))
/* What has a length and can be subscribed. */
TEST(t_sequence, self->kind == J_STRING || self->kind == J_LIST || self->kind == J_TUPLE ||
                     self->kind == J_DICT || self->kind == J_RANGE || self->kind == J_UNDEFINED)
TEST(t_callable, self->kind == J_MACRO || self->kind == J_FUNCTION || self->kind == J_METHOD ||
                     self->kind == J_JOINER || self->kind == J_LOOP || self->kind == J_UNDEFINED)

/* self % divisor == rest */
static rkv_status remainder_is(jctx *c, const jval *self, const jval *divisor, int64_t rest,
                               jval *out)
{
    const jval want = rkv_j_int(rest);
    jval v;
    int yes;
    RKV_TRY(rkv_j_binary(c, J_MOD, self, divisor, &v));
    RKV_TRY(rkv_j_equal(c, &v, &want, &yes));
    *out = rkv_j_bool(yes);
    return RKV_OK;
}

static rkv_status t_odd(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    const jval two = rkv_j_int(2);
    return remainder_is(c, self, &two, 1, out);
}

static rkv_status t_even(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    const jval two = rkv_j_int(2);
    return remainder_is(c, self, &two, 0, out);
}

static rkv_status t_divisibleby(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return remainder_is(c, self, &a->v[0], 0, out);
}

/* Identity, of which only containers have one here; equal scalars of a type are the same. */
static rkv_status t_sameas(jctx *c, const jval *self, const jargs *a, jval *out)
{
    const jval *b = &a->v[0];
    int yes = self->kind == b->kind;
    if (yes && self->kind >= J_LIST)
        yes = self->p == b->p;
    else if (yes)
        RKV_TRY(rkv_j_equal(c, self, b, &yes));
    *out = rkv_j_bool(yes);
    return RKV_OK;
}

#define COMPARE(name, op) \
    static rkv_status name(jctx *c, const jval *self, const jargs *a, jval *out) \
    { \
        int yes; \
        RKV_TRY(rkv_j_compare(c, op, self, &a->v[0], &yes)); \
        *out = rkv_j_bool(yes); \
        return RKV_OK; \
    }
COMPARE(t_in, J_IN)
COMPARE(t_eq, J_EQ)
COMPARE(t_ne, J_NE)
COMPARE(t_gt, J_GT)
COMPARE(t_ge, J_GE)
COMPARE(t_lt, J_LT)
COMPARE(t_le, J_LE)

static const jdef tests[] = {
    {"defined", t_defined, "", 0},
    {"undefined", t_undefined, "", 0},
    {"none", t_none, "", 0},
    {"string", t_string, "", 0},
    {"mapping", t_mapping, "", 0},
    {"iterable", t_iterable, "", 0},
    {"sequence", t_sequence, "", 0},
    {"true", t_true, "", 0},
    {"false", t_false, "", 0},
    {"boolean", t_boolean, "", 0},
    {"number", t_number, "", 0},
    {"integer", t_integer, "", 0},
    {"float", t_float, "", 0},
    {"callable", t_callable, "", 0},
    {"escaped", t_escaped, "", 0},
    {"odd", t_odd, "", 0},
    {"even", t_even, "", 0},
    {"divisibleby", t_divisibleby, "num", 0},
    {"upper", rkv_j_str_isupper, "", 1},
    {"lower", rkv_j_str_islower, "", 1},
    {"sameas", t_sameas, "other", 0},
    {"filter", t_filter, "", 0},
    {"test", t_test, "", 0},
    {"in", t_in, "seq", 0},
    {"eq", t_eq, "1", 0},
    {"equalto", t_eq, "1", 0},
    {"==", t_eq, "1", 0},
    {"ne", t_ne, "1", 0},
    {"!=", t_ne, "1", 0},
    {"gt", t_gt, "1", 0},
    {"greaterthan", t_gt, "1", 0},
    {">", t_gt, "1", 0},
    {"ge", t_ge, "1", 0},
    {">=", t_ge, "1", 0},
    {"lt", t_lt, "1", 0},
    {"lessthan", t_lt, "1", 0},
    {"<", t_lt, "1", 0},
    {"le", t_le, "1", 0},
    {"<=", t_le, "1", 0},
    {NULL, NULL, NULL, 0}};

const jdef *rkv_j_test(const char *s, size_t n)
{
    return rkv_j_find_def(tests, s, n);
}
