/* Parsing of statements. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

static rkv_status parse_statement(jparser *p, jnode **out);

/* ---- helpers --------------------------------------------------------------------------------- */

rkv_status rkv_j_add_node(jparser *p, jnodes *l, jnode *n)
{
    if (l->n == l->cap) {
        const int cap = l->cap * 2 + 4;
        jnode **v = rkv_j_alloc(p->c, (size_t)cap * sizeof *v);
        if (!v)
            return p->c->status;
        if (l->n)
            memcpy(v, l->v, (size_t)l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return RKV_OK;
}

rkv_status rkv_j_make(jparser *p, jnode_type type, int line, jnode *const *kid, int n, jnode **out)
{
    jnode *x = rkv_j_alloc(p->c, sizeof *x);
    jnode **copy = x && n ? rkv_j_alloc(p->c, (size_t)n * sizeof *copy) : NULL;
    if (!x || (n && !copy))
        return p->c->status;
    *x = (jnode){.type = (uint8_t)type, .line = line, .n = n, .kid = copy};
    int depth = 0;
    for (int i = 0; i < n; i++) {
        copy[i] = kid[i];
        if (kid[i] && kid[i]->depth > depth)
            depth = kid[i]->depth;
    }
    if (type >= N_CONST)
        x->depth = (uint8_t)(depth + 1);
    if (x->depth > RKV_CHAT_MAX_NESTING)
        return RKV_J_LIMIT(p->c, NESTING);
    *out = x;
    return RKV_OK;
}

static const char *describe(const jtoken *t)
{
    static const struct {
        int type;
        const char *text;
    } row[] = {{T_EOF, "end of template"},
               {T_DATA, "text"},
               {T_BLOCK_BEGIN, "{%"},
               {T_BLOCK_END, "%}"},
               {T_PRINT_BEGIN, "{{"},
               {T_PRINT_END, "}}"},
               {T_STRING, "a string"},
               {T_NUMBER, "a number"},
               {T_FLOORDIV, "//"},
               {T_POW, "**"},
               {T_EQ, "=="},
               {T_NE, "!="},
               {T_GE, ">="},
               {T_LE, "<="}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].type == t->type)
            return row[i].text;
    return t->name->s;
}

rkv_status rkv_j_syntax(jparser *p, const char *expected)
{
    p->c->line = p->t->line;
    if (p->t->type && p->t->type < 256)
        return rkv_j_fail(p->c, RKV_E_FORMAT, "expected %s, found '%c'", expected, p->t->type);
    return rkv_j_fail(p->c, RKV_E_FORMAT, "expected %s, found '%.60s'", expected, describe(p->t));
}

int rkv_j_skip(jparser *p, int type)
{
    if (p->t->type != type)
        return 0;
    p->t += type != T_EOF;
    return 1;
}

rkv_status rkv_j_expect(jparser *p, int type, const char *what)
{
    return rkv_j_skip(p, type) ? RKV_OK : rkv_j_syntax(p, what);
}

int rkv_j_is_word(const jtoken *t, const char *word)
{
    return t->type == T_NAME && !strcmp(t->name->s, word);
}

int rkv_j_skip_word(jparser *p, const char *word)
{
    const int is = rkv_j_is_word(p->t, word);
    p->t += is;
    return is;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static rkv_status fail_at(jparser *p, int line, const char *text)
{
    p->c->line = line;
    return rkv_j_fail(p->c, RKV_E_FORMAT, "%s", text);
}

static int at_end_word(const jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (rkv_j_is_word(p->t, *ends))
            return 1;
    return 0;
}

/* Text, prints and statements until one of the words, at which p->t then stands. */
static rkv_status parse_parts(jparser *p, const char *const *ends, jnode **out)
{
    const int line = p->t->line;
    jnodes l = {0};
    while (p->t->type != T_EOF) {
        jnode *x;
        const jtoken *t = p->t++;
        if (t->type == T_DATA) {
            RKV_TRY(rkv_j_make(p, N_TEXT, t->line, NULL, 0, &x));
            x->val = t->val;
        } else if (t->type == T_PRINT_BEGIN) {
            RKV_TRY(rkv_j_parse_tuple(p, 0, NULL, &x));
            RKV_TRY(rkv_j_expect(p, T_PRINT_END, "'}}'"));
            RKV_TRY(rkv_j_make(p, N_PRINT, t->line, &x, 1, &x));
        } else {
            if (at_end_word(p, ends))
                return rkv_j_make(p, N_BLOCK, line, l.v, l.n, out);
            RKV_TRY(parse_statement(p, &x));
            RKV_TRY(rkv_j_expect(p, T_BLOCK_END, "'%}'"));
        }
        RKV_TRY(rkv_j_add_node(p, &l, x));
    }
    if (ends) {
        p->c->line = p->t->line;
        return rkv_j_fail(p->c, RKV_E_FORMAT, "unexpected end of template, expected {%% %s %%}",
                          *ends);
    }
    return rkv_j_make(p, N_BLOCK, line, l.v, l.n, out);
}

/* The body of a statement, after its head. */
static rkv_status parse_body(jparser *p, const char *const *ends, jnode **out)
{
    p->c->line = p->t->line;
    if (++p->block_nesting > RKV_CHAT_MAX_NESTING)
        return RKV_J_LIMIT(p->c, NESTING);
    rkv_j_skip(p, ':');
    RKV_TRY(rkv_j_expect(p, T_BLOCK_END, "'%}'"));
    RKV_TRY(parse_parts(p, ends, out));
    p->block_nesting--;
    return RKV_OK;
}

/* A body with one possible end word, which is skipped. */
static rkv_status parse_body_to(jparser *p, const char *end, jnode **out)
{
    const char *const ends[] = {end, NULL};
    RKV_TRY(parse_body(p, ends, out));
    p->t++;
    return RKV_OK;
}

/* ---- targets --------------------------------------------------------------------------------- */

static rkv_status check_target(jparser *p, const jnode *n, int for_sets_loop)
{
    if (n->type == N_TUPLE) {
        for (int i = 0; i < n->n; i++)
            RKV_TRY(check_target(p, n->kid[i], for_sets_loop));
        return RKV_OK;
    }
    if (n->type == N_NAMESPACE_REF)
        return RKV_OK;
    if (n->type != N_NAME)
        return fail_at(p, n->line, "this cannot be assigned to");
    if (for_sets_loop && !strcmp(n->name->s, "loop"))
        return fail_at(p, n->line, "the variable 'loop' cannot be set inside a for loop");
    return RKV_OK;
}

static rkv_status parse_one_target(jparser *p, int namespaces, jnode **out)
{
    const jtoken *t = p->t;
    if (!namespaces || t->type != T_NAME || t[1].type != '.')
        return rkv_j_parse_primary(p, out);
    p->t += 2;
    const jtoken *attribute = p->t;
    RKV_TRY(rkv_j_expect(p, T_NAME, "a name"));
    RKV_TRY(rkv_j_make(p, N_NAMESPACE_REF, t->line, NULL, 0, out));
    (*out)->name = t->name;
    (*out)->val = rkv_j_string(attribute->name->s, attribute->name->n);
    return RKV_OK;
}

/* Names, tuples of names and, with namespaces, ns.attr; end: a word that ends it, or NULL. */
static rkv_status parse_target(jparser *p, int namespaces, const char *end, int is_param,
                               jnode **out)
{
    const int line = p->t->line;
    int is_tuple = 0;
    jmacro_uses *uses = p->uses;
    p->uses = NULL;                             /* a name that is set is not a mention */
    jnodes l = {0};
    while (p->t->type != T_BLOCK_END && p->t->type != ')' && !(end && rkv_j_is_word(p->t, end))) {
        jnode *x;
        RKV_TRY(parse_one_target(p, namespaces, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
        if (!rkv_j_skip(p, ','))
            break;
        is_tuple = 1;
    }
    p->uses = uses;
    if (!l.n)
        return rkv_j_syntax(p, "a name to assign to");
    *out = l.v[0];
    if (is_tuple)
        RKV_TRY(rkv_j_make(p, N_TUPLE, line, l.v, l.n, out));
    return check_target(p, *out, p->for_tags > 0 && !is_param);
}

static rkv_status parse_plain_name(jparser *p, const jname **out)
{
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    const jtoken *t = p->t;
    RKV_TRY(rkv_j_expect(p, T_NAME, "a name"));
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(t->name->s, reserved[i]))
            return fail_at(p, t->line, "a constant cannot be assigned to");
    *out = t->name;
    return RKV_OK;
}

/* ---- statements ------------------------------------------------------------------------------ */

static rkv_status parse_if(jparser *p, jnode **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    const int line = p->t->line;
    jnodes l = {0};
    jnode *x;
    do {
        p->t++;
        RKV_TRY(rkv_j_parse_tuple(p, J_NO_CONDITIONS, NULL, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
        RKV_TRY(parse_body(p, ends, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
    } while (rkv_j_is_word(p->t, "elif"));
    if (rkv_j_is_word(p->t++, "else")) {
        RKV_TRY(parse_body_to(p, "endif", &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
    }
    return rkv_j_make(p, N_IF, line, l.v, l.n, out);
}

static rkv_status parse_for(jparser *p, jnode **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    const int line = p->t++->line;
    jnode *kid[5] = {NULL};
    p->for_tags++;
    RKV_TRY(parse_target(p, 0, "in", 0, &kid[0]));
    if (!rkv_j_skip_word(p, "in"))
        return rkv_j_syntax(p, "'in'");
    RKV_TRY(rkv_j_parse_tuple(p, J_NO_CONDITIONS, "recursive", &kid[1]));
    if (rkv_j_skip_word(p, "if"))
        RKV_TRY(rkv_j_parse_expr(p, &kid[2]));
    if (rkv_j_is_word(p->t, "recursive"))
        return rkv_j_fail(p->c, RKV_E_UNSUPPORTED, "a recursive for loop is not supported");
    p->loops++;
    RKV_TRY(parse_body(p, ends, &kid[3]));
    p->loops--;
    if (rkv_j_is_word(p->t++, "else"))
        RKV_TRY(parse_body_to(p, "endfor", &kid[4]));
    p->for_tags--;
    return rkv_j_make(p, N_FOR, line, kid, 5, out);
}

static rkv_status parse_set(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnode *kid[3] = {NULL};
    RKV_TRY(parse_target(p, 1, NULL, 0, &kid[0]));
    if (rkv_j_skip(p, '=')) {
        RKV_TRY(rkv_j_parse_tuple(p, 0, NULL, &kid[1]));
        return rkv_j_make(p, N_SET, line, kid, 2, out);
    }
    RKV_TRY(rkv_j_parse_filters(p, NULL, 0, &kid[1]));
    RKV_TRY(parse_body_to(p, "endset", &kid[2]));
    return rkv_j_make(p, N_SET_BLOCK, line, kid, 3, out);
}

static rkv_status parse_with(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnodes l = {0};
    jnode *x;
    while (p->t->type != T_BLOCK_END) {
        if (l.n)
            RKV_TRY(rkv_j_expect(p, ',', "','"));
        /* One name, or a tuple in parentheses: a comma separates the assignments. */
        RKV_TRY(parse_target(p, 0, NULL, 1, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
        RKV_TRY(rkv_j_expect(p, '=', "'='"));
        RKV_TRY(rkv_j_parse_expr(p, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
    }
    RKV_TRY(parse_body_to(p, "endwith", &x));
    RKV_TRY(rkv_j_add_node(p, &l, x));
    return rkv_j_make(p, N_WITH, line, l.v, l.n, out);
}

typedef struct signature {
    const jname *name[RKV_CHAT_MAX_NESTING];
    jnode *kid[RKV_CHAT_MAX_NESTING + 1];       /* defaults; then the body */
    int n;
} signature;

static rkv_status parse_signature(jparser *p, signature *s)
{
    RKV_TRY(rkv_j_expect(p, '(', "'('"));
    while (p->t->type != ')') {
        if (s->n)
            RKV_TRY(rkv_j_expect(p, ',', "','"));
        if (s->n == RKV_CHAT_MAX_NESTING)
            return RKV_J_LIMIT(p->c, NESTING);
        const int line = p->t->line;
        RKV_TRY(parse_plain_name(p, &s->name[s->n]));
        for (int i = 0; i < s->n; i++)
            if (s->name[i] == s->name[s->n])
                return fail_at(p, line, "a parameter is repeated");
        s->kid[s->n] = NULL;
        if (rkv_j_skip(p, '='))
            RKV_TRY(rkv_j_parse_expr(p, &s->kid[s->n]));
        else if (s->n && s->kid[s->n - 1])
            return fail_at(p, line, "a parameter without a default follows one that has it");
        s->n++;
    }
    p->t++;
    return RKV_OK;
}

/* The body of a function: a macro, a caller or a generation block. */
static rkv_status parse_function(jparser *p, const char *end, int *uses, jnode **out)
{
    jmacro_uses u = {p->uses, 0};
    const int loops = p->loops;
    p->uses = &u;
    p->loops = 0;
    RKV_TRY(parse_body_to(p, end, out));
    p->uses = u.up;
    p->loops = loops;
    *uses = u.uses;
    return RKV_OK;
}

static rkv_status make_macro(jparser *p, int line, const jname *name, signature *s, const char *end,
                             jnode **out)
{
    int uses;
    RKV_TRY(parse_function(p, end, &uses, &s->kid[s->n]));
    RKV_TRY(rkv_j_make(p, N_MACRO, line, s->kid, s->n + 1, out));
    jnode *m = *out;
    m->name = name;
    m->uses = (uint8_t)uses;
    m->n_name = s->n;
    if (!(m->names = rkv_j_alloc(p->c, (size_t)s->n * sizeof *m->names)))
        return p->c->status;
    for (int i = 0; i < s->n; i++) {
        m->names[i] = s->name[i];
        if (!strcmp(s->name[i]->s, "caller") && (uses & USES_CALLER) && !s->kid[i])
            return fail_at(p, line, "the parameter 'caller' needs a default");
    }
    return RKV_OK;
}

static rkv_status parse_macro(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    const jname *name;
    signature s = {.n = 0};
    RKV_TRY(parse_plain_name(p, &name));
    RKV_TRY(parse_signature(p, &s));
    return make_macro(p, line, name, &s, "endmacro", out);
}

static rkv_status parse_call_block(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnode *kid[2];
    signature s = {.n = 0};
    if (p->t->type == '(')
        RKV_TRY(parse_signature(p, &s));
    RKV_TRY(rkv_j_parse_expr(p, &kid[0]));
    if (kid[0]->type != N_CALL)
        return fail_at(p, line, "expected a call after {% call %}");
    RKV_TRY(make_macro(p, line, NULL, &s, "endcall", &kid[1]));
    return rkv_j_make(p, N_CALL_BLOCK, line, kid, 2, out);
}

static rkv_status parse_filter_block(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnode *kid[2];
    RKV_TRY(rkv_j_parse_filters(p, NULL, 1, &kid[0]));
    RKV_TRY(parse_body_to(p, "endfilter", &kid[1]));
    return rkv_j_make(p, N_FILTER_BLOCK, line, kid, 2, out);
}

static rkv_status parse_generation(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    int uses;
    jnode *body;
    RKV_TRY(parse_function(p, "endgeneration", &uses, &body));
    return rkv_j_make(p, N_SCOPE, line, &body, 1, out);
}

static rkv_status parse_print(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnodes l = {0};
    while (p->t->type != T_BLOCK_END) {
        jnode *x;
        if (l.n)
            RKV_TRY(rkv_j_expect(p, ',', "','"));
        RKV_TRY(rkv_j_parse_expr(p, &x));
        RKV_TRY(rkv_j_make(p, N_PRINT, line, &x, 1, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
    }
    return rkv_j_make(p, N_BLOCK, line, l.v, l.n, out);
}

static rkv_status parse_loop_control(jparser *p, jnode **out)
{
    const int is_break = rkv_j_is_word(p->t, "break");
    if (!p->loops)
        return fail_at(p, p->t->line,
                       is_break ? "break outside of a loop" : "continue outside of a loop");
    return rkv_j_make(p, is_break ? N_BREAK : N_CONTINUE, p->t++->line, NULL, 0, out);
}

static rkv_status parse_statement(jparser *p, jnode **out)
{
    if (p->t->type != T_NAME)
        return rkv_j_syntax(p, "the name of a tag");
    static const struct {
        const char *word;
        rkv_status (*parse)(jparser *p, jnode **out);   /* NULL: jinja2 has it, we do not */
    } row[] = {{"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro},
               {"call", parse_call_block}, {"filter", parse_filter_block}, {"with", parse_with},
               {"generation", parse_generation}, {"print", parse_print},
               {"break", parse_loop_control}, {"continue", parse_loop_control},
               {"block", NULL}, {"extends", NULL}, {"include", NULL}, {"import", NULL},
               {"from", NULL}, {"autoescape", NULL}};
    const char *word = p->t->name->s;
    p->c->line = p->t->line;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!strcmp(row[i].word, word))
            return row[i].parse
                       ? row[i].parse(p, out)
                       : rkv_j_fail(p->c, RKV_E_UNSUPPORTED, "the tag '%s' is not supported", word);
    return rkv_j_fail(p->c, RKV_E_FORMAT, "unknown tag '%.60s'", word);
}

rkv_status rkv_j_parse(jctx *c, const jtoken *tokens, jnode **out)
{
    jparser p = {.c = c, .t = tokens};
    return parse_parts(&p, NULL, out);
}
