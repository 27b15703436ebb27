/* Statements. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

enum { GO_ON, BREAK, CONTINUE };        /* jctx.flow */

/* ---- scopes and assignment ------------------------------------------------------------------- */

static rkv_status enter_scope(jctx *c, jscope *s, const jnode *body)
{
    s->n = 0;
    c->scope = s;
    const jval unset = {.kind = J_ABSENT};
    for (int i = 0; i < body->n_name; i++)
        RKV_TRY(rkv_j_set_name(c, body->names[i], &unset));
    return RKV_OK;
}

rkv_status rkv_j_push_scope(jctx *c, jscope *up, const jnode *body, jscope **out)
{
    jscope *s = rkv_j_alloc(c, sizeof *s);
    if (!s)
        return c->status;
    *s = (jscope){.up = up};
    *out = s;
    return enter_scope(c, s, body);
}

rkv_status rkv_j_set_name(jctx *c, const jname *name, const jval *v)
{
    jscope *s = c->scope;
    RKV_TRY(rkv_j_step(c, 1 + (s->n >> 4)));
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].name == name) {
            s->v[i].v = *v;
            return RKV_OK;
        }
    if (s->n == s->cap) {
        const size_t cap = s->cap * 2 + 4;
        jbinding *b = rkv_j_alloc(c, cap * sizeof *b);
        if (!b)
            return c->status;
        if (s->n)
            memcpy(b, s->v, s->n * sizeof *b);
        s->v = b;
        s->cap = cap;
    }
    s->v[s->n++] = (jbinding){name, *v};
    return RKV_OK;
}

static rkv_status assign(jctx *c, const jnode *target, const jval *v);

static rkv_status unpack(jctx *c, const jnode *target, const jval *v)
{
    jiter *it;
    jval item;
    int more;
    RKV_TRY(rkv_j_iterate(c, v, &it));
    for (int i = 0; i < target->n; i++) {
        RKV_TRY(rkv_j_next(c, it, &item, &more));
        if (!more)
            return rkv_j_fail(c, RKV_E_FORMAT, "not enough values to unpack (expected %d, got %d)",
                              target->n, i);
        RKV_TRY(assign(c, target->kid[i], &item));
    }
    RKV_TRY(rkv_j_next(c, it, &item, &more));
    return more ? rkv_j_fail(c, RKV_E_FORMAT, "too many values to unpack (expected %d)", target->n)
                : RKV_OK;
}

static rkv_status assign(jctx *c, const jnode *target, const jval *v)
{
    c->line = target->line;
    if (target->type == N_NAME)
        return rkv_j_set_name(c, target->name, v);
    if (target->type == N_TUPLE)
        return unpack(c, target, v);
    jval space;
    const jnode name = {.type = N_NAME, .line = target->line, .name = target->name};
    RKV_TRY(rkv_j_eval(c, &name, &space));
    if (space.kind != J_NAMESPACE)
        return rkv_j_fail(c, RKV_E_FORMAT,
                          "cannot assign attribute on non-namespace object '%.60s'",
                          target->name->s);
    return rkv_j_set_item(c, space.dict, &target->val, v);
}

/* ---- for ------------------------------------------------------------------------------------- */

/* The state of {% for ... if test %}, in the iterator's extra.p. */
typedef struct filtered {
    const jnode *node;
    jscope *scope;
} filtered;

static rkv_status next_filtered(jctx *c, jiter *it, jval *out, int *more)
{
    const filtered *f = it->extra.p;
    for (;;) {
        RKV_TRY(rkv_j_next(c, it->from, out, more));
        if (!*more)
            return RKV_OK;
        jscope *outer = c->scope;
        jval test;
        c->scope = f->scope;
        f->scope->n = 0;
        RKV_TRY(assign(c, f->node->kid[0], out));
        RKV_TRY(rkv_j_eval(c, f->node->kid[2], &test));
        c->scope = outer;
        if (rkv_j_truth(&test))
            return RKV_OK;
    }
}

static rkv_status filter_items(jctx *c, const jnode *n, jval *over)
{
    filtered *f = rkv_j_alloc(c, sizeof *f);
    jscope *s = f ? rkv_j_alloc(c, sizeof *s) : NULL;
    if (!s)
        return c->status;
    *s = (jscope){.up = c->scope};
    *f = (filtered){n, s};
    RKV_TRY(rkv_j_lazy(c, over, next_filtered, over));
    over->iter->extra.p = f;
    return RKV_OK;
}

/* Runs the body for each item; *complete: some round reached its end. */
static rkv_status exec_rounds(jctx *c, const jnode *n, jloop *loop, jscope *s, int *complete)
{
    const jval variable = {.kind = J_LOOP, .loop = loop};
    for (;;) {
        jval item;
        int more;
        c->scope = s->up;
        c->line = n->line;
        RKV_TRY(rkv_j_loop_next(c, loop, &item, &more));
        if (!more)
            return RKV_OK;
        RKV_TRY(enter_scope(c, s, n->kid[3]));
        RKV_TRY(rkv_j_set_name(c, c->loop, &variable));
        RKV_TRY(assign(c, n->kid[0], &item));
        RKV_TRY(rkv_j_exec(c, n->kid[3]));
        const int flow = c->flow;
        c->flow = GO_ON;
        if (flow == BREAK)
            return RKV_OK;
        *complete |= flow == GO_ON;
    }
}

static rkv_status exec_for(jctx *c, const jnode *n)
{
    jscope *outer = c->scope;
    jscope *s = rkv_j_alloc(c, sizeof *s);
    jloop *loop = s ? rkv_j_alloc(c, sizeof *loop) : NULL;
    if (!loop)
        return c->status;
    *s = (jscope){.up = outer};
    *loop = (jloop){.index0 = -1, .length = -1};
    RKV_TRY(rkv_j_eval(c, n->kid[1], &loop->over));
    c->line = n->line;
    if (n->kid[2])
        RKV_TRY(filter_items(c, n, &loop->over));
    RKV_TRY(rkv_j_iterate(c, &loop->over, &loop->iter));
    int complete = 0;
    RKV_TRY(exec_rounds(c, n, loop, s, &complete));
    c->scope = outer;
    /* jinja2 takes the else branch when no round reached the end of the body: also after a break or
     * continue in each of them. */
    if (complete || !n->kid[4])
        return RKV_OK;
    RKV_TRY(rkv_j_push_scope(c, outer, n->kid[4], &s));
    RKV_TRY(rkv_j_exec(c, n->kid[4]));
    c->scope = outer;
    return RKV_OK;
}

/* ---- blocks that capture their output -------------------------------------------------------- */

/* The text of a body in a scope of its own, through filters; *done = 0 when a break or continue
 * left it. */
static rkv_status capture(jctx *c, const jnode *body, const jnode *filters, jval *out, int *done)
{
    jscope *outer = c->scope, *s;
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_push_scope(c, outer, body, &s));
    RKV_TRY(rkv_j_exec(c, body));
    *done = c->flow == GO_ON;
    if (!*done) {
        c->out.n = mark;
        c->scope = outer;
        return RKV_OK;
    }
    RKV_TRY(rkv_j_take(c, mark, out));
    if (filters) {
        const jval text = *out, *before = c->captured;
        c->captured = &text;
        RKV_TRY(rkv_j_eval(c, filters, out));
        c->captured = before;
    }
    c->scope = outer;
    return RKV_OK;
}

static rkv_status exec_set_block(jctx *c, const jnode *n)
{
    jval v;
    int done;
    RKV_TRY(capture(c, n->kid[2], n->kid[1], &v, &done));
    return done ? assign(c, n->kid[0], &v) : RKV_OK;
}

/* Where jinja2 joins the result to the output without str(). */
static rkv_status put_block(jctx *c, const jval *v, const char *what)
{
    if (v->kind != J_STRING)
        return rkv_j_fail(c, RKV_E_FORMAT, "the %s block gives %s instead of str", what,
                          rkv_j_type(v));
    return rkv_j_put(c, v->s, v->n);
}

static rkv_status exec_filter_block(jctx *c, const jnode *n)
{
    jval v;
    int done;
    RKV_TRY(capture(c, n->kid[1], n->kid[0], &v, &done));
    return done ? put_block(c, &v, "filter") : RKV_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static rkv_status exec_block(jctx *c, const jnode *n)
{
    for (int i = 0; i < n->n && c->flow == GO_ON; i++)
        RKV_TRY(rkv_j_exec(c, n->kid[i]));
    return RKV_OK;
}

static rkv_status exec_text(jctx *c, const jnode *n)
{
    return rkv_j_put(c, n->val.s, n->val.n);
}

static rkv_status exec_print(jctx *c, const jnode *n)
{
    jval v;
    RKV_TRY(rkv_j_eval(c, n->kid[0], &v));
    c->line = n->line;
    return rkv_j_put_str(c, &v);
}

static rkv_status exec_if(jctx *c, const jnode *n)
{
    for (int i = 0; i + 1 < n->n; i += 2) {
        jval test;
        RKV_TRY(rkv_j_eval(c, n->kid[i], &test));
        if (rkv_j_truth(&test))
            return rkv_j_exec(c, n->kid[i + 1]);
    }
    return n->n % 2 ? rkv_j_exec(c, n->kid[n->n - 1]) : RKV_OK;
}

static rkv_status exec_set(jctx *c, const jnode *n)
{
    jval v;
    RKV_TRY(rkv_j_eval(c, n->kid[1], &v));
    return assign(c, n->kid[0], &v);
}

static rkv_status exec_with(jctx *c, const jnode *n)
{
    jscope *outer = c->scope, *inner;
    const jnode *body = n->kid[n->n - 1];
    RKV_TRY(rkv_j_push_scope(c, outer, body, &inner));
    for (int i = 0; i + 1 < n->n; i += 2) {
        jval v;
        c->scope = outer;
        RKV_TRY(rkv_j_eval(c, n->kid[i + 1], &v));
        c->scope = inner;
        RKV_TRY(assign(c, n->kid[i], &v));
    }
    c->scope = inner;
    RKV_TRY(rkv_j_exec(c, body));
    c->scope = outer;
    return RKV_OK;
}

static rkv_status exec_scope(jctx *c, const jnode *n)
{
    jscope *outer = c->scope, *inner;
    RKV_TRY(rkv_j_push_scope(c, outer, n->kid[0], &inner));
    RKV_TRY(rkv_j_exec(c, n->kid[0]));
    c->scope = outer;
    return RKV_OK;
}

static rkv_status make_macro(jctx *c, const jnode *n, jval *out)
{
    jmacro *m = rkv_j_alloc(c, sizeof *m);
    if (!m)
        return c->status;
    *m = (jmacro){n, c->scope};
    *out = (jval){.kind = J_MACRO, .macro = m};
    return RKV_OK;
}

static rkv_status exec_macro(jctx *c, const jnode *n)
{
    jval v;
    RKV_TRY(make_macro(c, n, &v));
    return rkv_j_set_name(c, n->name, &v);
}

static rkv_status exec_call_block(jctx *c, const jnode *n)
{
    const jnode *call = n->kid[0];
    jkeyword caller = {.s = "caller", .n = 6};
    jval callee, v;
    jargs a;
    RKV_TRY(make_macro(c, n->kid[1], &caller.v));
    RKV_TRY(rkv_j_eval(c, call->kid[0], &callee));
    RKV_TRY(rkv_j_eval_args(c, call->args, &caller, &a));
    c->line = n->line;
    RKV_TRY(rkv_j_call(c, &callee, &a, &v));
    return put_block(c, &v, "call");
}

static rkv_status exec_break(jctx *c, const jnode *n)
{
    c->flow = n->type == N_BREAK ? BREAK : CONTINUE;
    return RKV_OK;
}

rkv_status rkv_j_exec(jctx *c, const jnode *n)
{
    static rkv_status (*const table[])(jctx *,
                                       const jnode *) = {[N_BLOCK] = exec_block,
                                                         [N_TEXT] = exec_text,
                                                         [N_PRINT] = exec_print,
                                                         [N_IF] = exec_if,
                                                         [N_FOR] = exec_for,
                                                         [N_SET] = exec_set,
                                                         [N_SET_BLOCK] = exec_set_block,
                                                         [N_WITH] = exec_with,
                                                         [N_MACRO] = exec_macro,
                                                         [N_CALL_BLOCK] = exec_call_block,
                                                         [N_FILTER_BLOCK] = exec_filter_block,
                                                         [N_SCOPE] = exec_scope,
                                                         [N_BREAK] = exec_break,
                                                         [N_CONTINUE] = exec_break};
    if (++c->depth > RKV_CHAT_MAX_DEPTH)
        return RKV_J_LIMIT(c, DEPTH);
    c->line = n->line;
    RKV_TRY(rkv_j_step(c, 1));
    RKV_TRY(table[n->type](c, n));
    c->depth--;
    return RKV_OK;
}
