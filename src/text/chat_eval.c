/* Expressions. */
#include "config.h"
#include "text/chat_ast.h"

#include <stdio.h>
#include <string.h>

static rkv_status eval_const(jctx *c, const jnode *n, jval *out)
{
    (void)c;
    *out = n->val;
    return RKV_OK;
}

static rkv_status eval_name(jctx *c, const jnode *n, jval *out)
{
    for (const jscope *s = c->scope; s; s = s->up) {
        RKV_TRY(rkv_j_step(c, s->n >> 4));
        for (size_t i = 0; i < s->n; i++)
            if (s->v[i].name == n->name) {
                *out = s->v[i].v;
                if (out->kind == J_ABSENT)
                    *out = rkv_j_missing(J_NO_NAME, NULL, n->name->s, n->name->n);
                return RKV_OK;
            }
    }
    RKV_TRY(rkv_j_step(c, c->vars->n >> 4));
    const jval *v = rkv_j_find_string(c->vars, n->name->s, n->name->n);
    const jdef *def = v ? NULL : rkv_j_global(n->name->s, n->name->n);
    if (v)
        *out = *v;
    else if (def)
        *out = (jval){.kind = J_FUNCTION, .def = def};
    else
        *out = rkv_j_missing(J_NO_NAME, NULL, n->name->s, n->name->n);
    return RKV_OK;
}

static rkv_status eval_items(jctx *c, const jnode *n, jval *out)
{
    jval l, v;
    RKV_TRY(rkv_j_list(c, n->type == N_LIST ? J_LIST : J_TUPLE, (size_t)n->n, &l));
    for (int i = 0; i < n->n; i++) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], &v));
        RKV_TRY(rkv_j_append(c, l.list, &v));
    }
    *out = l;
    return RKV_OK;
}

static rkv_status eval_dict(jctx *c, const jnode *n, jval *out)
{
    jval d, key, v;
    RKV_TRY(rkv_j_dict(c, J_DICT, (size_t)n->n / 2, &d));
    for (int i = 0; i < n->n; i += 2) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], &key));
        RKV_TRY(rkv_j_eval(c, n->kid[i + 1], &v));
        RKV_TRY(rkv_j_set_item(c, d.dict, &key, &v));
    }
    *out = d;
    return RKV_OK;
}

static rkv_status eval_math(jctx *c, const jnode *n, jval *out)
{
    jval a, b;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &a));
    for (int i = 1; i < n->n; i++) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], &b));
        c->line = n->kid[i]->line;
        RKV_TRY(rkv_j_binary(c, (jop)n->op[i - 1], &a, &b, &a));
    }
    *out = a;
    return RKV_OK;
}

static rkv_status eval_concat(jctx *c, const jnode *n, jval *out)
{
    jval all = rkv_j_literal(""), v;
    for (int i = 0; i < n->n; i++) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], &v));
        RKV_TRY(rkv_j_to_string(c, &v, &v));
        RKV_TRY(rkv_j_concat(c, &all, &v, &all));
    }
    *out = all;
    return RKV_OK;
}

static rkv_status eval_logic(jctx *c, const jnode *n, jval *out)
{
    for (int i = 0; i < n->n; i++) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], out));
        if (rkv_j_truth(out) == (n->type == N_OR))
            break;
    }
    return RKV_OK;
}

static rkv_status eval_not(jctx *c, const jnode *n, jval *out)
{
    RKV_TRY(rkv_j_eval(c, n->kid[0], out));
    *out = rkv_j_bool(!rkv_j_truth(out));
    return RKV_OK;
}

static rkv_status eval_sign(jctx *c, const jnode *n, jval *out)
{
    jval v;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &v));
    c->line = n->line;
    return rkv_j_negate(c, &v, n->type == N_NEGATIVE, out);
}

static rkv_status eval_compare(jctx *c, const jnode *n, jval *out)
{
    jval a, b;
    int yes = 1;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &a));
    for (int i = 1; i < n->n && yes; i++) {
        RKV_TRY(rkv_j_eval(c, n->kid[i], &b));
        c->line = n->kid[i]->line;
        RKV_TRY(rkv_j_compare(c, (jop)n->op[i - 1], &a, &b, &yes));
        a = b;
    }
    *out = rkv_j_bool(yes);
    return RKV_OK;
}

static rkv_status eval_condition(jctx *c, const jnode *n, jval *out)
{
    jval test;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &test));
    if (rkv_j_truth(&test))
        return rkv_j_eval(c, n->kid[1], out);
    if (n->kid[2])
        return rkv_j_eval(c, n->kid[2], out);
    static const char hint[] = "the inline if-expression was false and has no else";
    *out = rkv_j_missing(J_HINT, NULL, hint, strlen(hint));
    return RKV_OK;
}

static rkv_status eval_attribute(jctx *c, const jnode *n, jval *out)
{
    jval v;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &v));
    c->line = n->line;
    return rkv_j_attribute(c, &v, n->val.s, n->val.n, out);
}

static rkv_status eval_item(jctx *c, const jnode *n, jval *out)
{
    jval v, key;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &v));
    RKV_TRY(rkv_j_eval(c, n->kid[1], &key));
    c->line = n->line;
    return rkv_j_item(c, &v, &key, out);
}

static rkv_status eval_slice(jctx *c, const jnode *n, jval *out)
{
    jval v, bound[3];
    RKV_TRY(rkv_j_eval(c, n->kid[0], &v));
    for (int i = 0; i < 3; i++) {
        bound[i] = rkv_j_none();
        if (n->kid[i + 1])
            RKV_TRY(rkv_j_eval(c, n->kid[i + 1], &bound[i]));
    }
    c->line = n->line;
    return rkv_j_slice(c, &v, bound, out);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static rkv_status add_keyword(jctx *c, jargs *a, const char *s, size_t n, const jval *v)
{
    for (int i = 0; i < a->n_kw; i++)
        if (a->kw[i].n == n && !memcmp(a->kw[i].s, s, n))
            return rkv_j_fail(c, RKV_E_FORMAT, "keyword argument '%.*s' is repeated",
                              n > 60 ? 60 : (int)n, s);
    a->kw[a->n_kw++] = (jkeyword){s, n, *v};
    return RKV_OK;
}

static rkv_status add_star_star(jctx *c, jargs *a, const jval *v)
{
    if (v->kind != J_DICT)
        return rkv_j_fail(c, RKV_E_FORMAT, "argument after ** must be a mapping, not %s",
                          rkv_j_type(v));
    RKV_TRY(rkv_j_step(c, v->dict->n * v->dict->n));
    for (size_t i = 0; i < v->dict->n; i++) {
        const jval *key = &v->dict->v[i].key;
        if (key->kind != J_STRING)
            return rkv_j_fail(c, RKV_E_FORMAT, "keywords must be strings");
        RKV_TRY(add_keyword(c, a, key->s, key->n, &v->dict->v[i].value));
    }
    return RKV_OK;
}

rkv_status rkv_j_eval_args(jctx *c, const jcallargs *a, const jkeyword *extra, jargs *out)
{
    *out = (jargs){0};
    jval list, star = {.kind = J_ABSENT}, star_star = star, v;
    RKV_TRY(rkv_j_list(c, J_LIST, (size_t)a->n_pos, &list));
    for (int i = 0; i < a->n_pos; i++) {
        RKV_TRY(rkv_j_eval(c, a->pos[i], &v));
        RKV_TRY(rkv_j_append(c, list.list, &v));
    }
    if (a->star) {
        RKV_TRY(rkv_j_eval(c, a->star, &star));
        RKV_TRY(rkv_j_to_list(c, &star, &star));
        for (size_t i = 0; i < star.list->n; i++)
            RKV_TRY(rkv_j_append(c, list.list, &star.list->v[i]));
    }
    if (a->star_star)
        RKV_TRY(rkv_j_eval(c, a->star_star, &star_star));
    const size_t n_kw =
        (size_t)a->n_kw + !!extra + (star_star.kind == J_DICT ? star_star.dict->n : 0);
    if (!(out->kw = rkv_j_alloc(c, n_kw * sizeof *out->kw)))
        return c->status;
    for (int i = 0; i < a->n_kw; i++) {
        RKV_TRY(rkv_j_eval(c, a->kw[i], &v));
        RKV_TRY(add_keyword(c, out, a->name[i]->s, a->name[i]->n, &v));
    }
    if (extra)
        RKV_TRY(add_keyword(c, out, extra->s, extra->n, &extra->v));
    if (a->star_star)
        RKV_TRY(add_star_star(c, out, &star_star));
    out->v = list.list->v;
    out->n = (int)list.list->n;
    return RKV_OK;
}

static rkv_status eval_call(jctx *c, const jnode *n, jval *out)
{
    jval callee;
    jargs a;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &callee));
    RKV_TRY(rkv_j_eval_args(c, n->args, NULL, &a));
    c->line = n->line;
    return rkv_j_call(c, &callee, &a, out);
}

/* Filters and tests. */
static rkv_status eval_filter(jctx *c, const jnode *n, jval *out)
{
    const char *const what = n->type == N_FILTER ? "filter" : "test";
    jval self;
    jargs a;
    if (n->kid[0])
        RKV_TRY(rkv_j_eval(c, n->kid[0], &self));
    else
        self = *c->captured;
    RKV_TRY(rkv_j_eval_args(c, n->args, NULL, &a));
    c->line = n->line;
    if (!n->def)
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "no %s named '%.60s'", what, n->name->s);
    return rkv_j_call_def(c, n->def, what, &self, &a, out);
}

rkv_status rkv_j_eval(jctx *c, const jnode *n, jval *out)
{
    static rkv_status (*const table[])(jctx *, const jnode *, jval *) = {
        [N_CONST] = eval_const,     [N_NAME] = eval_name,           [N_TUPLE] = eval_items,
        [N_LIST] = eval_items,      [N_DICT] = eval_dict,           [N_MATH] = eval_math,
        [N_CONCAT] = eval_concat,   [N_AND] = eval_logic,           [N_OR] = eval_logic,
        [N_NOT] = eval_not,         [N_NEGATIVE] = eval_sign,       [N_POSITIVE] = eval_sign,
        [N_COMPARE] = eval_compare, [N_CONDITION] = eval_condition, [N_ATTRIBUTE] = eval_attribute,
        [N_ITEM] = eval_item,       [N_SLICE] = eval_slice,         [N_CALL] = eval_call,
        [N_FILTER] = eval_filter,   [N_TEST] = eval_filter};
    if (++c->depth > RKV_CHAT_MAX_DEPTH)
        return RKV_J_LIMIT(c, DEPTH);
    c->line = n->line;
    RKV_TRY(rkv_j_step(c, 1));
    RKV_TRY(table[n->type](c, n, out));
    c->depth--;
    return RKV_OK;
}
