/* Calls: binding of arguments, macros, the global functions. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>
#include <time.h>

enum { MAX_PARAMS = 8 };

/* ---- library functions ----------------------------------------------------------------------- */

const jdef *rkv_j_find_def(const jdef *table, const char *s, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && !memcmp(table->name, s, n))
            return table;
    return NULL;
}

static const jkeyword *find_keyword(const jargs *a, const char *s, size_t n)
{
    for (int i = 0; i < a->n_kw; i++)
        if (a->kw[i].n == n && !memcmp(a->kw[i].s, s, n))
            return &a->kw[i];
    return NULL;
}

/* Arranges the arguments in the order of the definition's parameters. */
static rkv_status bind(jctx *c, const jdef *def, const char *what, const jargs *a, jval *v,
                       int *count)
{
    int n = 0, used = 0;
    for (const char *p = def->params; *p; n++) {
        const size_t len = strcspn(p, ",?");
        const int optional = p[len] == '?';
        const jkeyword *kw = find_keyword(a, p, len);
        if (n < a->n && kw)
            return rkv_j_fail(c, RKV_E_FORMAT, "%s '%s' got two values for '%.*s'", what, def->name,
                              (int)len, p);
        if (n >= a->n && !kw && !optional)
            return rkv_j_fail(c, RKV_E_FORMAT, "%s '%s' misses the argument '%.*s'", what,
                              def->name, (int)len, p);
        v[n] = n < a->n ? a->v[n] : kw ? kw->v : (jval){.kind = J_ABSENT};
        used += kw != NULL;
        p += len + (size_t)optional;
        p += *p == ',';
    }
    *count = n;
    if (a->n > n)
        return rkv_j_fail(c, RKV_E_FORMAT, "%s '%s' takes at most %d arguments, got %d", what,
                          def->name, n, a->n);
    return used < a->n_kw ? rkv_j_fail(c, RKV_E_FORMAT, "%s '%s' got an unknown keyword argument",
                                       what, def->name)
                          : RKV_OK;
}

rkv_status rkv_j_call_def(jctx *c, const jdef *def, const char *what, const jval *self,
                          const jargs *a, jval *out)
{
    jval v[MAX_PARAMS], text;
    jargs bound = {.v = v};
    if (!def->fn)
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "the %s '%s' is not supported", what, def->name);
    if (def->text) {
        RKV_TRY(rkv_j_to_string(c, self, &text));
        self = &text;
    }
    if (*def->params == '*')
        return def->fn(c, self, a, out);
    RKV_TRY(bind(c, def, what, a, v, &bound.n));
    return def->fn(c, self, &bound, out);
}

/* ---- macros ---------------------------------------------------------------------------------- */

static int has_param(const jnode *m, const char *name)
{
    for (int i = 0; i < m->n_name; i++)
        if (!strcmp(m->names[i]->s, name))
            return 1;
    return 0;
}

static rkv_status set_word(jctx *c, const char *word, const jval *v)
{
    const jname *name;
    RKV_TRY(rkv_j_intern(c, word, strlen(word), &name));
    return rkv_j_set_name(c, name, v);
}

/* Keywords that are no parameter: an error, or the variable kwargs. */
static rkv_status bind_rest(jctx *c, const jnode *m, const jargs *a, int takes_caller)
{
    const int keeps = (m->uses & USES_KWARGS) && !has_param(m, "kwargs");
    const char *const name = m->name ? m->name->s : "caller";
    jval rest;
    RKV_TRY(rkv_j_dict(c, J_DICT, 0, &rest));
    for (int i = 0; i < a->n_kw; i++) {
        const jkeyword *kw = &a->kw[i];
        const jval key = rkv_j_string(kw->s, kw->n);
        int taken = takes_caller && kw->n == 6 && !memcmp(kw->s, "caller", 6);
        for (int k = a->n < m->n_name ? a->n : m->n_name; k < m->n_name; k++)
            taken |= m->names[k]->n == kw->n && !memcmp(m->names[k]->s, kw->s, kw->n);
        if (taken)
            continue;
        if (!keeps)
            return rkv_j_fail(c, RKV_E_FORMAT, "macro '%.60s' takes no keyword argument '%.*s'",
                              name, kw->n > 60 ? 60 : (int)kw->n, kw->s);
        RKV_TRY(rkv_j_set_item(c, rest.dict, &key, &kw->v));
    }
    return keeps ? set_word(c, "kwargs", &rest) : RKV_OK;
}

static rkv_status bind_special(jctx *c, const jnode *m, const jargs *a)
{
    const int takes_caller = (m->uses & USES_CALLER) && !has_param(m, "caller");
    if (takes_caller) {
        static const char hint[] = "No caller defined";
        const jkeyword *kw = find_keyword(a, "caller", 6);
        jval v = rkv_j_missing(J_HINT, NULL, hint, strlen(hint));
        if (kw && kw->v.kind != J_NONE)
            v = kw->v;
        RKV_TRY(set_word(c, "caller", &v));
    }
    RKV_TRY(bind_rest(c, m, a, takes_caller));
    if ((m->uses & USES_VARARGS) && !has_param(m, "varargs")) {
        jval rest;
        RKV_TRY(rkv_j_list(c, J_TUPLE, 0, &rest));
        for (int i = m->n_name; i < a->n; i++)
            RKV_TRY(rkv_j_append(c, rest.list, &a->v[i]));
        return set_word(c, "varargs", &rest);
    }
    if (a->n > m->n_name)
        return rkv_j_fail(c, RKV_E_FORMAT, "macro '%.60s' takes not more than %d arguments",
                          m->name ? m->name->s : "caller", m->n_name);
    return RKV_OK;
}

/* Defaults see the parameters before them. */
static rkv_status bind_params(jctx *c, const jnode *m, const jargs *a)
{
    static const char hint[] = "a parameter was not provided";
    const jval unset = {.kind = J_ABSENT};
    for (int i = 0; i < m->n_name; i++) {
        const jkeyword *kw = i < a->n ? NULL : find_keyword(a, m->names[i]->s, m->names[i]->n);
        RKV_TRY(rkv_j_set_name(c, m->names[i], i < a->n ? &a->v[i] : kw ? &kw->v : &unset));
    }
    RKV_TRY(bind_special(c, m, a));
    for (int i = a->n; i < m->n_name; i++) {
        if (find_keyword(a, m->names[i]->s, m->names[i]->n))
            continue;
        jval v = rkv_j_missing(J_HINT, NULL, hint, strlen(hint));
        if (m->kid[i])
            RKV_TRY(rkv_j_eval(c, m->kid[i], &v));
        RKV_TRY(rkv_j_set_name(c, m->names[i], &v));
    }
    return RKV_OK;
}

rkv_status rkv_j_call_macro(jctx *c, const jmacro *macro, const jargs *a, jval *out)
{
    const jnode *m = macro->node, *body = m->kid[m->n - 1];
    jscope *outer = c->scope, *inner;
    const size_t mark = c->out.n;
    if (c->calls >= RKV_CHAT_MAX_CALLS)
        return RKV_J_LIMIT(c, CALLS);
    c->calls++;
    RKV_TRY(rkv_j_push_scope(c, macro->scope, body, &inner));
    RKV_TRY(bind_params(c, m, a));
    RKV_TRY(rkv_j_exec(c, body));
    RKV_TRY(rkv_j_take(c, mark, out));
    c->scope = outer;
    c->calls--;
    return RKV_OK;
}

static rkv_status call_joiner(const jval *joiner, jval *out)
{
    jlist *l = joiner->list;
    *out = l->pos ? l->v[0] : rkv_j_literal("");
    l->pos = 1;
    return RKV_OK;
}

rkv_status rkv_j_call(jctx *c, const jval *callee, const jargs *a, jval *out)
{
    switch (callee->kind) {
    case J_MACRO:
        return rkv_j_call_macro(c, callee->macro, a, out);
    case J_FUNCTION:
        return rkv_j_call_def(c, callee->def, "function", NULL, a, out);
    case J_METHOD:
        return rkv_j_call_def(c, callee->method->def, "method", &callee->method->self, a, out);
    case J_JOINER:
        return call_joiner(callee, out);
    case J_UNDEFINED:
        return rkv_j_undefined(c, callee);
    default:
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s' object is not callable", rkv_j_type(callee));
    }
}

/* ---- global functions ------------------------------------------------------------------------ */

static rkv_status g_range(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    int64_t v[3] = {0, 0, 1};
    const int64_t most = INT64_C(1) << 53;
    for (int i = 0; i < a->n && a->v[i].kind != J_ABSENT; i++) {
        RKV_TRY(rkv_j_want_int(c, &a->v[i], &v[i]));
        if (v[i] > most || v[i] < -most)
            return RKV_J_LIMIT(c, RANGE);
    }
    if (a->v[1].kind == J_ABSENT) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "range() arg 3 must not be zero");
    jrange *r = rkv_j_alloc(c, sizeof *r);
    if (!r)
        return c->status;
    *r = (jrange){v[0], v[1], v[2]};
    if (rkv_j_range_length(r) > RKV_CHAT_MAX_RANGE)
        return RKV_J_LIMIT(c, RANGE);
    *out = (jval){.kind = J_RANGE, .range = r};
    return RKV_OK;
}

/* Adds what dict(v) would hold: a mapping's pairs, or an iterable's items as pairs. */
static rkv_status add_pairs(jctx *c, jdict *d, const jval *v)
{
    if (v->kind == J_DICT) {
        for (size_t i = 0; i < v->dict->n; i++)
            RKV_TRY(rkv_j_set_item(c, d, &v->dict->v[i].key, &v->dict->v[i].value));
        return RKV_OK;
    }
    jval l, pair;
    RKV_TRY(rkv_j_to_list(c, v, &l));
    for (size_t i = 0; i < l.list->n; i++) {
        RKV_TRY(rkv_j_to_list(c, &l.list->v[i], &pair));
        if (pair.list->n != 2)
            return rkv_j_fail(c, RKV_E_FORMAT, "item %zu of a dict has length %zu, 2 is required",
                              i, pair.list->n);
        RKV_TRY(rkv_j_set_item(c, d, &pair.list->v[0], &pair.list->v[1]));
    }
    return RKV_OK;
}

rkv_status rkv_j_update(jctx *c, jdict *d, const jargs *a)
{
    if (a->n > 1)
        return rkv_j_fail(c, RKV_E_FORMAT, "expected at most 1 argument, got %d", a->n);
    if (a->n)
        RKV_TRY(add_pairs(c, d, &a->v[0]));
    for (int i = 0; i < a->n_kw; i++) {
        const jval key = rkv_j_string(a->kw[i].s, a->kw[i].n);
        RKV_TRY(rkv_j_set_item(c, d, &key, &a->kw[i].v));
    }
    return RKV_OK;
}

static rkv_status g_dict(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    RKV_TRY(rkv_j_dict(c, J_DICT, (size_t)a->n_kw, out));
    return rkv_j_update(c, out->dict, a);
}

static rkv_status g_namespace(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    RKV_TRY(rkv_j_dict(c, J_NAMESPACE, (size_t)a->n_kw, out));
    return rkv_j_update(c, out->dict, a);
}

static rkv_status g_cycler(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    if (!a->n || a->n_kw)
        return rkv_j_fail(c, RKV_E_FORMAT, "cycler takes one item or more");
    jval l;
    RKV_TRY(rkv_j_list(c, J_LIST, (size_t)a->n, &l));
    for (int i = 0; i < a->n; i++)
        RKV_TRY(rkv_j_append(c, l.list, &a->v[i]));
    l.kind = J_CYCLER;
    *out = l;
    return RKV_OK;
}

static rkv_status g_joiner(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    const jval separator = a->v[0].kind == J_ABSENT ? rkv_j_literal(", ") : a->v[0];
    jval l;
    RKV_TRY(rkv_j_list(c, J_LIST, 1, &l));
    RKV_TRY(rkv_j_append(c, l.list, &separator));
    l.kind = J_JOINER;
    *out = l;
    return RKV_OK;
}

static rkv_status g_raise_exception(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    RKV_TRY(rkv_j_to_string(c, &a->v[0], out));
    return rkv_j_fail(c, RKV_E_FORMAT, "%.*s", out->n > 400 ? 400 : (int)out->n, out->s);
}

static rkv_status g_strftime_now(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)self;
    char format[256], buf[1024];
    struct tm tm;
    const time_t now = time(NULL);
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    /* A character after the format tells an empty result from one that does not fit. */
    if (a->v[0].n > sizeof format - 2 || !localtime_r(&now, &tm))
        return rkv_j_fail(c, RKV_E_ARG, "strftime_now: the format is longer than %zu bytes",
                          sizeof format - 2);
    memcpy(format, a->v[0].s, a->v[0].n);
    strcpy(format + a->v[0].n, "|");
    const size_t n = strftime(buf, sizeof buf, format, &tm);
    if (!n)
        return rkv_j_fail(c, RKV_E_ARG, "strftime_now: the date is longer than %zu bytes",
                          sizeof buf);
    return rkv_j_copy(c, buf, n - 1, out);
}

const jdef *rkv_j_global(const char *s, size_t n)
{
    static const jdef table[] = {
    {"namespace", g_namespace, "*", 0},
    {"range", g_range, "1,2?,3?", 0},
    {"dict", g_dict, "*", 0},
    {"raise_exception", g_raise_exception, "message", 0},
    {"strftime_now", g_strftime_now, "format", 0},
    {"cycler", g_cycler, "*", 0},
    {"joiner", g_joiner, "sep?", 0},
    {"lipsum", NULL, "*", 0},
    {NULL, NULL, NULL, 0}};
    return rkv_j_find_def(table, s, n);
}
