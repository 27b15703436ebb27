/* What jinja2 decides when it compiles a template: unknown filters and tests, and which variables
 * of a scope are unset on entry.
 *
 * jinja2 gives each scope (template, loop body, macro, ...) local variables. A name that a scope
 * sets before it reads it, outside of any if, starts as undefined there; inner scopes that run
 * earlier see it undefined, even when the caller passed a variable of that name. All other names
 * start with what is outside. (jinja2's idtracking.py.) */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

typedef struct entry {
    const jname *name;
    int unset;
} entry;

typedef struct frame {
    struct frame *up;
    jctx *c;
    entry *v;
    size_t n, cap;
} frame;

enum { HERE = 1, OUTSIDE = 2 };

/* Where a name is known: in this scope, or else in one around it. */
static rkv_status look(const frame *f, const jname *name, int *where)
{
    *where = HERE;
    for (const frame *at = f; at; at = at->up) {
        RKV_TRY(rkv_j_step(f->c, 1 + (at->n >> 4)));
        for (size_t i = 0; i < at->n; i++)
            if (at->v[i].name == name)
                return RKV_OK;
        *where = OUTSIDE;
    }
    *where = 0;
    return RKV_OK;
}

static rkv_status add(frame *f, const jname *name, int unset)
{
    jctx *c = f->c;
    if (f->n == f->cap) {
        const size_t cap = f->cap * 2 + 8;
        entry *v = rkv_j_alloc(c, cap * sizeof *v);
        if (!v)
            return c->status;
        if (f->n)
            memcpy(v, f->v, f->n * sizeof *v);
        f->v = v;
        f->cap = cap;
    }
    f->v[f->n++] = (entry){name, unset};
    return RKV_OK;
}

static rkv_status load(frame *f, const jname *name)
{
    int where;
    RKV_TRY(look(f, name, &where));
    return where ? RKV_OK : add(f, name, 0);
}

/* conditional: inside of an if. */
static rkv_status store(frame *f, const jname *name, int conditional)
{
    int where;
    RKV_TRY(look(f, name, &where));
    return where == HERE ? RKV_OK : add(f, name, !conditional && !where);
}

/* ---- the names of one scope, in the order of the text ---------------------------------------- */

typedef rkv_status on_node(frame *f, const jnode *n, int flag);

/* Calls visit for a node of an expression and all below it. */
static rkv_status walk(frame *f, const jnode *n, on_node *visit, int flag)
{
    if (!n)
        return RKV_OK;
    flag |= n->type == N_CONDITION;
    RKV_TRY(visit(f, n, flag));
    for (int i = 0; i < n->n; i++)
        RKV_TRY(walk(f, n->kid[i], visit, flag));
    if (!n->args)
        return RKV_OK;
    for (int i = 0; i < n->args->n_pos; i++)
        RKV_TRY(walk(f, n->args->pos[i], visit, flag));
    for (int i = 0; i < n->args->n_kw; i++)
        RKV_TRY(walk(f, n->args->kw[i], visit, flag));
    RKV_TRY(walk(f, n->args->star, visit, flag));
    return walk(f, n->args->star_star, visit, flag);
}

static rkv_status load_node(frame *f, const jnode *n, int flag)
{
    (void)flag;
    return n->type == N_NAME ? load(f, n->name) : RKV_OK;
}

static rkv_status loads(frame *f, const jnode *n)
{
    return walk(f, n, load_node, 0);
}

static rkv_status stores(frame *f, const jnode *target, int conditional)
{
    if (target->type == N_NAMESPACE_REF)
        return load(f, target->name);
    if (target->type == N_NAME)
        return store(f, target->name, conditional);
    for (int i = 0; i < target->n; i++)
        RKV_TRY(stores(f, target->kid[i], conditional));
    return RKV_OK;
}

static rkv_status names_of(frame *f, const jnode *n, int conditional)
{
    switch (n->type) {
    case N_BLOCK:
        for (int i = 0; i < n->n; i++)
            RKV_TRY(names_of(f, n->kid[i], conditional));
        return RKV_OK;
    case N_PRINT:
    case N_CALL_BLOCK:
    case N_FILTER_BLOCK:
        return loads(f, n->kid[0]);
    case N_IF:
        for (int i = 0; i + 1 < n->n; i += 2) {
            RKV_TRY(loads(f, n->kid[i]));
            RKV_TRY(names_of(f, n->kid[i + 1], 1));
        }
        return n->n % 2 ? names_of(f, n->kid[n->n - 1], 1) : RKV_OK;
    case N_FOR:
        return loads(f, n->kid[1]);
    case N_SET:
        RKV_TRY(loads(f, n->kid[1]));
        return stores(f, n->kid[0], conditional);
    case N_SET_BLOCK:
        RKV_TRY(stores(f, n->kid[0], conditional));
        return loads(f, n->kid[1]);
    case N_WITH:
        for (int i = 1; i < n->n; i += 2)
            RKV_TRY(loads(f, n->kid[i]));
        return RKV_OK;
    case N_MACRO:
        return store(f, n->name, conditional);
    default:
        return RKV_OK;
    }
}

/* ---- the whole tree -------------------------------------------------------------------------- */

static rkv_status check_node(frame *f, const jnode *n, int soft)
{
    if ((n->type != N_FILTER && n->type != N_TEST) || n->def || soft)
        return RKV_OK;
    f->c->line = n->line;
    return rkv_j_fail(f->c, RKV_E_UNSUPPORTED, "no %s named '%.60s'",
                      n->type == N_FILTER ? "filter" : "test", n->name->s);
}

static rkv_status check(frame *f, const jnode *n, int soft)
{
    return walk(f, n, check_node, soft);
}

static rkv_status check_statement(frame *f, const jnode *n, int soft);

static rkv_status check_block(frame *f, const jnode *body, int soft)
{
    for (int i = 0; i < body->n; i++)
        RKV_TRY(check_statement(f, body->kid[i], soft));
    return RKV_OK;
}

/* A scope whose parameters f has already. */
static rkv_status check_scope(frame *f, jnode *body)
{
    RKV_TRY(names_of(f, body, 0));
    const jname **names = rkv_j_alloc(f->c, f->n * sizeof *names);
    if (!names)
        return f->c->status;
    body->names = names;
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].unset)
            names[body->n_name++] = f->v[i].name;
    return check_block(f, body, 0);
}

static rkv_status add_targets(frame *f, const jnode *target)
{
    if (target->type == N_NAME)
        return add(f, target->name, 0);
    for (int i = 0; i < target->n; i++)
        RKV_TRY(add_targets(f, target->kid[i]));
    return RKV_OK;
}

static rkv_status add_word(frame *f, const char *word)
{
    const jname *name;
    RKV_TRY(rkv_j_intern(f->c, word, strlen(word), &name));
    return add(f, name, 0);
}

static rkv_status check_for(frame *f, const jnode *n, int soft)
{
    frame body = {.up = f, .c = f->c}, other = body;
    RKV_TRY(check(f, n->kid[1], soft));
    RKV_TRY(check(f, n->kid[2], 0));
    RKV_TRY(add_word(&body, "loop"));
    RKV_TRY(add_targets(&body, n->kid[0]));
    RKV_TRY(check_scope(&body, n->kid[3]));
    return n->kid[4] ? check_scope(&other, n->kid[4]) : RKV_OK;
}

static rkv_status check_macro(frame *f, const jnode *n)
{
    static const char *const special[] = {"caller", "kwargs", "varargs"};
    frame inner = {.up = f, .c = f->c};
    for (int i = 0; i < n->n_name; i++)
        RKV_TRY(add(&inner, n->names[i], 0));
    for (int i = 0; i < 3; i++)
        if (n->uses & 1 << i)
            RKV_TRY(add_word(&inner, special[i]));
    for (int i = 0; i < n->n_name; i++) {
        RKV_TRY(loads(&inner, n->kid[i]));
        RKV_TRY(check(&inner, n->kid[i], 0));
    }
    return check_scope(&inner, n->kid[n->n - 1]);
}

static rkv_status check_with(frame *f, const jnode *n, int soft)
{
    frame inner = {.up = f, .c = f->c};
    for (int i = 0; i + 1 < n->n; i += 2) {
        RKV_TRY(check(f, n->kid[i + 1], soft));
        RKV_TRY(add_targets(&inner, n->kid[i]));
    }
    return check_scope(&inner, n->kid[n->n - 1]);
}

static rkv_status check_if(frame *f, const jnode *n)
{
    for (int i = 0; i + 1 < n->n; i += 2) {
        RKV_TRY(check(f, n->kid[i], 1));
        RKV_TRY(check_block(f, n->kid[i + 1], 1));
    }
    return n->n % 2 ? check_block(f, n->kid[n->n - 1], 1) : RKV_OK;
}

static rkv_status check_statement(frame *f, const jnode *n, int soft)
{
    frame inner = {.up = f, .c = f->c};
    switch (n->type) {
    case N_BLOCK:
        return check_block(f, n, soft);
    case N_PRINT:
        return check(f, n->kid[0], soft);
    case N_IF:
        return check_if(f, n);
    case N_FOR:
        return check_for(f, n, soft);
    case N_SET:
        return check(f, n->kid[1], soft);
    case N_SET_BLOCK:
        RKV_TRY(check(f, n->kid[1], 0));
        return check_scope(&inner, n->kid[2]);
    case N_WITH:
        return check_with(f, n, soft);
    case N_MACRO:
        return check_macro(f, n);
    case N_CALL_BLOCK:
        RKV_TRY(check(f, n->kid[0], soft));
        return check_macro(f, n->kid[1]);
    case N_FILTER_BLOCK:
        RKV_TRY(check(f, n->kid[0], 0));
        return check_scope(&inner, n->kid[1]);
    case N_SCOPE:
        return check_scope(&inner, n->kid[0]);
    default:
        return RKV_OK;
    }
}

rkv_status rkv_j_check(jctx *c, jnode *root)
{
    frame f = {.c = c};
    return check_scope(&f, root);
}
