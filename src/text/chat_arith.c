/* Arithmetic, as in Python; integers beyond 64 bits are refused. */
#include "config.h"
#include "text/chat_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rkv_status too_large(jctx *c)
{
    return rkv_j_fail(c, RKV_E_ARG, "an integer is beyond 64 bits");
}

static rkv_status by_zero(jctx *c)
{
    return rkv_j_fail(c, RKV_E_FORMAT, "division by zero");
}

static double as_float(const jval *v)
{
    return v->kind == J_FLOAT ? v->f : (double)v->i;
}

/* ---- integers -------------------------------------------------------------------------------- */

static int add_int(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return 0;
    *out = a + b;
    return 1;
}

static int multiply_int(int64_t a, int64_t b, int64_t *out)
{
    const uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a,
                   y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    if (y && x > (uint64_t)INT64_MAX / y)
        return 0;
    *out = (a < 0) == (b < 0) ? (int64_t)(x * y) : -(int64_t)(x * y);
    return 1;
}

static rkv_status power_int(jctx *c, int64_t base, int64_t exponent, jval *out)
{
    int64_t v = 1;
    const int small = base >= -1 && base <= 1;
    if (small)                                  /* the exponent's parity is all that matters */
        exponent = exponent ? 2 - exponent % 2 : 0;
    for (int64_t i = 0; i < exponent; i++)
        if (!multiply_int(v, base, &v))
            return too_large(c);
    *out = rkv_j_int(v);
    return RKV_OK;
}

static rkv_status divide_int(jctx *c, jop op, int64_t a, int64_t b, jval *out)
{
    if (b == 0)
        return by_zero(c);
    if (op == J_DIV) {
        *out = rkv_j_float((double)a / (double)b);
        return RKV_OK;
    }
    if (a == INT64_MIN && b == -1)
        return too_large(c);
    int64_t q = a / b, r = a % b;
    if (r && (r < 0) != (b < 0)) {              /* towards minus infinity */
        q--;
        r += b;
    }
    *out = rkv_j_int(op == J_FLOORDIV ? q : r);
    return RKV_OK;
}

static rkv_status binary_int(jctx *c, jop op, int64_t a, int64_t b, jval *out)
{
    int64_t v = 0;
    int ok;
    switch (op) {
    case J_ADD:
        ok = add_int(a, b, &v);
        break;
    case J_SUB:
        ok = b != INT64_MIN && add_int(a, -b, &v);
        break;
    case J_MUL:
        ok = multiply_int(a, b, &v);
        break;
    default:
        return divide_int(c, op, a, b, out);
    }
    if (!ok)
        return too_large(c);
    *out = rkv_j_int(v);
    return RKV_OK;
}

/* ---- floats ---------------------------------------------------------------------------------- */

static rkv_status power_float(jctx *c, double a, double b, jval *out)
{
    if (a == 0.0 && b < 0.0)
        return rkv_j_fail(c, RKV_E_FORMAT, "0.0 cannot be raised to a negative power");
    if (a < 0.0 && isfinite(a) && isfinite(b) && b != floor(b))
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a complex number");
    const double v = pow(a, b);
    if (isinf(v) && isfinite(a) && isfinite(b))
        return rkv_j_fail(c, RKV_E_FORMAT, "the result of ** is too large for a float");
    *out = rkv_j_float(v);
    return RKV_OK;
}

/* Python's floor division and modulo of floats, whose remainder has the sign of b. */
static void divide_floor(double a, double b, double *quotient, double *rest)
{
    double r = fmod(a, b), q = (a - r) / b;
    if (r != 0.0 && (b < 0.0) != (r < 0.0)) {
        r += b;
        q -= 1.0;
    }
    if (r == 0.0)
        r = copysign(0.0, b);
    if (q != 0.0) {
        const double whole = floor(q);
        q = q - whole > 0.5 ? whole + 1.0 : whole;
    } else {
        q = copysign(0.0, a / b);
    }
    *quotient = q;
    *rest = r;
}

static rkv_status binary_float(jctx *c, jop op, double a, double b, jval *out)
{
    double q = 0.0, r = 0.0;
    switch (op) {
    case J_ADD:
        q = a + b;
        break;
    case J_SUB:
        q = a - b;
        break;
    case J_MUL:
        q = a * b;
        break;
    case J_POW:
        return power_float(c, a, b, out);
    default:
        if (b == 0.0)
            return by_zero(c);
        if (op == J_DIV)
            q = a / b;
        else
            divide_floor(a, b, &q, &r);
    }
    *out = rkv_j_float(op == J_MOD ? r : q);
    return RKV_OK;
}

static rkv_status binary_number(jctx *c, jop op, const jval *a, const jval *b, jval *out)
{
    if (a->kind == J_FLOAT || b->kind == J_FLOAT)
        return binary_float(c, op, as_float(a), as_float(b), out);
    if (op != J_POW)
        return binary_int(c, op, a->i, b->i, out);
    return b->i >= 0 ? power_int(c, a->i, b->i, out)
                     : power_float(c, (double)a->i, (double)b->i, out);
}

rkv_status rkv_j_negate(jctx *c, const jval *v, int negative, jval *out)
{
    if (v->kind == J_UNDEFINED)
        return rkv_j_undefined(c, v);
    if (!rkv_j_is_number(v))
        return rkv_j_fail(c, RKV_E_FORMAT, "bad operand type for unary %c: '%s'",
                          negative ? '-' : '+', rkv_j_type(v));
    if (v->kind == J_FLOAT)
        *out = rkv_j_float(negative ? -v->f : v->f);
    else if (negative && v->i == INT64_MIN)
        return too_large(c);
    else
        *out = rkv_j_int(negative ? -v->i : v->i);
    return RKV_OK;
}

/* Half to even on the exact value, which printf does too; digits may be negative. */
double rkv_j_round(double v, int digits)
{
    char buf[700];
    if (!isfinite(v) || v == 0.0 || digits > 323)
        return v;
    if (digits >= 0) {
        snprintf(buf, sizeof buf, "%.*f", digits, v);
        return strtod(buf, NULL);
    }
    if (digits < -308)
        return copysign(0.0, v);
    snprintf(buf, sizeof buf, "%.30e", v);
    const int precision = atoi(strchr(buf, 'e') + 1) + digits;  /* digits that stay, less one */
    if (precision < 0) {
        const double unit = pow(10.0, -digits);
        return copysign(fabs(v) > unit / 2 ? unit : 0.0, v);
    }
    snprintf(buf, sizeof buf, "%.*e", precision, v);
    return strtod(buf, NULL);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static rkv_status add_lists(jctx *c, const jval *a, const jval *b, jval *out)
{
    jval l;
    RKV_TRY(rkv_j_list(c, (jkind)a->kind, a->list->n + b->list->n, &l));
    const jlist *const part[2] = {a->list, b->list};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < part[k]->n; i++)
            RKV_TRY(rkv_j_append(c, l.list, &part[k]->v[i]));
    *out = l;
    return RKV_OK;
}

static rkv_status add_strings(jctx *c, const jval *a, const jval *b, jval *out)
{
    const int safe = a->safe || b->safe;
    jval x = *a, y = *b;
    if (safe) {
        RKV_TRY(rkv_j_escape(c, a, &x));
        RKV_TRY(rkv_j_escape(c, b, &y));
    }
    RKV_TRY(rkv_j_concat(c, &x, &y, out));
    out->safe = (uint8_t)safe;
    return RKV_OK;
}

rkv_status rkv_j_repeat(jctx *c, const jval *v, int64_t times, jval *out)
{
    const size_t n = v->kind == J_STRING ? v->n : v->list->n;
    const size_t most = v->kind == J_STRING ? RKV_CHAT_MAX_STRING : RKV_CHAT_MAX_ITEMS;
    if (times < 0 || n == 0)
        times = 0;
    if (n && (uint64_t)times > most / n)
        return v->kind == J_STRING ? RKV_J_LIMIT(c, STRING) : RKV_J_LIMIT(c, ITEMS);
    if (v->kind == J_STRING) {
        char *p = rkv_j_alloc(c, n * (size_t)times);
        if (!p)
            return c->status;
        const size_t size = n * (size_t)times;
        RKV_TRY(rkv_j_step(c, size >> 8));
        if (size)
            memcpy(p, v->s, n);
        for (size_t done = n; done < size; done *= 2)
            memcpy(p + done, p, done < size - done ? done : size - done);
        const uint8_t safe = v->safe;
        *out = rkv_j_string(p, size);
        out->safe = safe;
        return RKV_OK;
    }
    jval l;
    RKV_TRY(rkv_j_list(c, (jkind)v->kind, n * (size_t)times, &l));
    for (int64_t k = 0; k < times; k++)
        for (size_t i = 0; i < n; i++)
            RKV_TRY(rkv_j_append(c, l.list, &v->list->v[i]));
    *out = l;
    return RKV_OK;
}

static int is_sequence(const jval *v)
{
    return v->kind == J_STRING || v->kind == J_LIST || v->kind == J_TUPLE;
}

rkv_status rkv_j_binary(jctx *c, jop op, const jval *a, const jval *b, jval *out)
{
    static const char *const sign[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (rkv_j_is_number(a) && rkv_j_is_number(b))
        return binary_number(c, op, a, b, out);
    if (op == J_MOD && a->kind == J_STRING)
        return rkv_j_percent(c, a, b, out);
    if (a->kind == J_UNDEFINED || b->kind == J_UNDEFINED)
        return rkv_j_undefined(c, a->kind == J_UNDEFINED ? a : b);
    if (op == J_ADD && a->kind == J_STRING && b->kind == J_STRING)
        return add_strings(c, a, b, out);
    if (op == J_ADD && a->kind == b->kind && (a->kind == J_LIST || a->kind == J_TUPLE))
        return add_lists(c, a, b, out);
    if (op == J_MUL && is_sequence(a) && (b->kind == J_INT || b->kind == J_BOOL))
        return rkv_j_repeat(c, a, b->i, out);
    if (op == J_MUL && is_sequence(b) && (a->kind == J_INT || a->kind == J_BOOL))
        return rkv_j_repeat(c, b, a->i, out);
    return rkv_j_fail(c, RKV_E_FORMAT, "unsupported operand type(s) for %s: '%s' and '%s'",
                      sign[op], rkv_j_type(a), rkv_j_type(b));
}
