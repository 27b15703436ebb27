/* Parsing of expressions: precedence as in jinja2, chains kept flat so that the tree stays shallow.
 */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

/* ---- primary expressions --------------------------------------------------------------------- */

static rkv_status constant(jparser *p, int line, jval v, jnode **out)
{
    RKV_TRY(rkv_j_make(p, N_CONST, line, NULL, 0, out));
    (*out)->val = v;
    return RKV_OK;
}

static rkv_status parse_name(jparser *p, jnode **out)
{
    static const struct {
        const char *word;
        jval v;
    } known[] = {{"true", {.kind = J_BOOL, .i = 1}}, {"True", {.kind = J_BOOL, .i = 1}},
                 {"false", {.kind = J_BOOL}}, {"False", {.kind = J_BOOL}},
                 {"none", {.kind = J_NONE}}, {"None", {.kind = J_NONE}}};
    static const char *const special[] = {"caller", "kwargs", "varargs"};
    const jtoken *t = p->t++;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(t->name->s, known[i].word))
            return constant(p, t->line, known[i].v, out);
    for (int i = 0; i < 3; i++)
        if (!strcmp(t->name->s, special[i]))
            for (jmacro_uses *u = p->uses; u; u = u->up)
                u->uses |= 1 << i;
    RKV_TRY(rkv_j_make(p, N_NAME, t->line, NULL, 0, out));
    (*out)->name = t->name;
    return RKV_OK;
}

/* Literals side by side are one. */
static rkv_status parse_string(jparser *p, jnode **out)
{
    const int line = p->t->line;
    jval v = p->t++->val;
    while (p->t->type == T_STRING)
        RKV_TRY(rkv_j_concat(p->c, &v, &p->t++->val, &v));
    return constant(p, line, v, out);
}

static rkv_status parse_list(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnodes l = {0};
    while (p->t->type != ']') {
        if (l.n)
            RKV_TRY(rkv_j_expect(p, ',', "','"));
        if (p->t->type == ']')
            break;
        jnode *x;
        RKV_TRY(rkv_j_parse_expr(p, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
    }
    p->t++;
    return rkv_j_make(p, N_LIST, line, l.v, l.n, out);
}

static rkv_status parse_dict(jparser *p, jnode **out)
{
    const int line = p->t++->line;
    jnodes l = {0};
    while (p->t->type != '}') {
        if (l.n)
            RKV_TRY(rkv_j_expect(p, ',', "','"));
        if (p->t->type == '}')
            break;
        jnode *key, *value;
        RKV_TRY(rkv_j_parse_expr(p, &key));
        RKV_TRY(rkv_j_expect(p, ':', "':'"));
        RKV_TRY(rkv_j_parse_expr(p, &value));
        RKV_TRY(rkv_j_add_node(p, &l, key));
        RKV_TRY(rkv_j_add_node(p, &l, value));
    }
    p->t++;
    return rkv_j_make(p, N_DICT, line, l.v, l.n, out);
}

rkv_status rkv_j_parse_primary(jparser *p, jnode **out)
{
    switch (p->t->type) {
    case T_NAME:
        return parse_name(p, out);
    case T_STRING:
        return parse_string(p, out);
    case T_NUMBER:
        p->t++;
        return constant(p, p->t[-1].line, p->t[-1].val, out);
    case '(':
        p->t++;
        RKV_TRY(rkv_j_parse_tuple(p, J_IN_PARENTHESES, NULL, out));
        return rkv_j_expect(p, ')', "')'");
    case '[':
        return parse_list(p, out);
    case '{':
        return parse_dict(p, out);
    default:
        return rkv_j_syntax(p, "an expression");
    }
}

/* ---- calls, subscripts, filters, tests ------------------------------------------------------- */

static rkv_status add_keyword(jparser *p, jcallargs *a, jnodes *values)
{
    const jname *name = p->t->name, **names;
    p->t += 2;
    if (!(names = rkv_j_alloc(p->c, (size_t)(a->n_kw + 1) * sizeof *names)))
        return p->c->status;
    for (int i = 0; i < a->n_kw; i++) {
        names[i] = a->name[i];
        if (names[i] == name)
            return rkv_j_fail(p->c, RKV_E_FORMAT, "keyword argument '%.60s' is repeated", name->s);
    }
    names[a->n_kw++] = name;
    a->name = names;
    jnode *x;
    RKV_TRY(rkv_j_parse_expr(p, &x));
    return rkv_j_add_node(p, values, x);
}

static rkv_status parse_argument(jparser *p, jcallargs *a, jnodes *pos, jnodes *kw)
{
    static const char order[] = "an argument in the order of Python (positional, named, *, **)";
    if (p->t->type == '*' && !a->star && !a->star_star) {
        p->t++;
        return rkv_j_parse_expr(p, &a->star);
    }
    if (p->t->type == T_POW && !a->star_star) {
        p->t++;
        return rkv_j_parse_expr(p, &a->star_star);
    }
    if (p->t->type == T_NAME && p->t[1].type == '=')
        return a->star_star ? rkv_j_syntax(p, order) : add_keyword(p, a, kw);
    if (a->star || a->star_star || kw->n)
        return rkv_j_syntax(p, order);
    jnode *x;
    RKV_TRY(rkv_j_parse_expr(p, &x));
    return rkv_j_add_node(p, pos, x);
}

/* The node's depth covers its arguments as well. */
static rkv_status take_depth(jparser *p, jnode *n, const jcallargs *a)
{
    int depth = n->depth - 1;
    const jnode *star[2] = {a->star, a->star_star};
    for (int i = 0; i < a->n_pos + a->n_kw + 2; i++) {
        const jnode *x = i < a->n_pos            ? a->pos[i]
                         : i < a->n_pos + a->n_kw ? a->kw[i - a->n_pos]
                                                  : star[i - a->n_pos - a->n_kw];
        if (x && x->depth > depth)
            depth = x->depth;
    }
    n->depth = (uint8_t)(depth + 1);
    return n->depth > RKV_CHAT_MAX_NESTING ? RKV_J_LIMIT(p->c, NESTING) : RKV_OK;
}

static rkv_status parse_arguments(jparser *p, jnode *n)
{
    jcallargs *a = rkv_j_alloc(p->c, sizeof *a);
    if (!a)
        return p->c->status;
    *a = (jcallargs){0};
    jnodes pos = {0}, kw = {0};
    RKV_TRY(rkv_j_expect(p, '(', "'('"));
    for (int first = 1; p->t->type != ')'; first = 0) {
        if (!first) {
            RKV_TRY(rkv_j_expect(p, ',', "','"));
            if (p->t->type == ')')
                break;
        }
        RKV_TRY(parse_argument(p, a, &pos, &kw));
    }
    p->t++;
    a->pos = pos.v;
    a->n_pos = pos.n;
    a->kw = kw.v;
    n->args = a;
    return take_depth(p, n, a);
}

static rkv_status parse_call(jparser *p, jnode *callee, jnode **out)
{
    RKV_TRY(rkv_j_make(p, N_CALL, p->t->line, &callee, 1, out));
    return parse_arguments(p, *out);
}

static rkv_status parse_dot(jparser *p, jnode *object, jnode **out)
{
    const int line = p->t++->line;
    const jtoken *t = p->t;
    if (t->type == T_NAME) {
        p->t++;
        RKV_TRY(rkv_j_make(p, N_ATTRIBUTE, line, &object, 1, out));
        (*out)->val = rkv_j_string(t->name->s, t->name->n);
        return RKV_OK;
    }
    if (t->type != T_NUMBER || t->val.kind != J_INT)
        return rkv_j_syntax(p, "a name or number");
    p->t++;
    jnode *kid[2] = {object, NULL};
    RKV_TRY(constant(p, t->line, t->val, &kid[1]));
    return rkv_j_make(p, N_ITEM, line, kid, 2, out);
}

/* What is between the brackets, up to a comma or the end: kid[1..3], a slice when *is_slice. */
static rkv_status parse_key(jparser *p, jnode *kid[4], int *is_slice)
{
    *is_slice = 0;
    for (int i = 1; i < 4; i++) {
        if (p->t->type != ':' && p->t->type != ']' && p->t->type != ',')
            RKV_TRY(rkv_j_parse_expr(p, &kid[i]));
        else if (i == 1 && p->t->type != ':')
            return rkv_j_syntax(p, "a key");
        if (i == 3 || !rkv_j_skip(p, ':'))
            break;
        *is_slice = 1;
    }
    return RKV_OK;
}

static rkv_status parse_brackets(jparser *p, jnode *object, jnode **out)
{
    const int line = p->t++->line;
    jnode *kid[4] = {object, NULL, NULL, NULL};
    int is_slice = 0, commas = 0;
    jnodes keys = {0};
    while (p->t->type != ']') {
        if (keys.n) {
            RKV_TRY(rkv_j_expect(p, ',', "','"));
            commas = 1;
        }
        RKV_TRY(parse_key(p, kid, &is_slice));
        if (is_slice && (keys.n || p->t->type == ','))
            return rkv_j_fail(p->c, RKV_E_FORMAT, "a slice cannot be part of a key");
        RKV_TRY(rkv_j_add_node(p, &keys, kid[1]));
    }
    p->t++;
    if (is_slice)
        return rkv_j_make(p, N_SLICE, line, kid, 4, out);
    if (commas || !keys.n)
        RKV_TRY(rkv_j_make(p, N_TUPLE, line, keys.v, keys.n, &kid[1]));
    return rkv_j_make(p, N_ITEM, line, kid, 2, out);
}

static rkv_status parse_postfix(jparser *p, jnode *n, jnode **out)
{
    for (;;) {
        if (p->t->type == '.')
            RKV_TRY(parse_dot(p, n, &n));
        else if (p->t->type == '[')
            RKV_TRY(parse_brackets(p, n, &n));
        else if (p->t->type == '(')
            RKV_TRY(parse_call(p, n, &n));
        else
            break;
    }
    *out = n;
    return RKV_OK;
}

/* name {. name} */
static rkv_status dotted_name(jparser *p, const char *what, const jname **out)
{
    const jtoken *first = p->t;
    RKV_TRY(rkv_j_expect(p, T_NAME, what));
    *out = first->name;
    if (p->t->type != '.')
        return RKV_OK;
    const size_t mark = p->c->out.n;
    RKV_TRY(rkv_j_put(p->c, first->name->s, first->name->n));
    while (rkv_j_skip(p, '.')) {
        const jtoken *t = p->t;
        RKV_TRY(rkv_j_expect(p, T_NAME, what));
        RKV_TRY(rkv_j_put(p->c, ".", 1));
        RKV_TRY(rkv_j_put(p->c, t->name->s, t->name->n));
    }
    jval v;
    RKV_TRY(rkv_j_take(p->c, mark, &v));
    return rkv_j_intern(p->c, v.s, v.n, out);
}

static rkv_status no_arguments(jparser *p, jnode *n)
{
    static const jcallargs none;
    (void)p;
    n->args = &none;
    return RKV_OK;
}

rkv_status rkv_j_parse_filters(jparser *p, jnode *base, int first, jnode **out)
{
    *out = base;
    for (; first || rkv_j_skip(p, '|'); first = 0) {
        const int line = p->t->line;
        const jname *name;
        RKV_TRY(dotted_name(p, "the name of a filter", &name));
        RKV_TRY(rkv_j_make(p, N_FILTER, line, out, 1, out));
        (*out)->name = name;
        (*out)->def = rkv_j_filter(name->s, name->n);
        RKV_TRY(p->t->type == '(' ? parse_arguments(p, *out) : no_arguments(p, *out));
    }
    return RKV_OK;
}

/* The argument of a test without parentheses: "is divisibleby 3". */
static rkv_status parse_test_argument(jparser *p, jnode *n)
{
    jcallargs *a = rkv_j_alloc(p->c, sizeof *a);
    jnode **pos = a ? rkv_j_alloc(p->c, sizeof *pos) : NULL;
    if (!pos)
        return p->c->status;
    if (rkv_j_is_word(p->t, "is"))
        return rkv_j_syntax(p, "one test after 'is'");
    jnode *x;
    RKV_TRY(rkv_j_parse_primary(p, &x));
    RKV_TRY(parse_postfix(p, x, pos));
    *a = (jcallargs){.pos = pos, .n_pos = 1};
    n->args = a;
    return take_depth(p, n, a);
}

static rkv_status parse_test(jparser *p, jnode *value, jnode **out)
{
    const int line = p->t++->line, negated = rkv_j_skip_word(p, "not");
    const jname *name;
    RKV_TRY(dotted_name(p, "the name of a test", &name));
    RKV_TRY(rkv_j_make(p, N_TEST, line, &value, 1, out));
    (*out)->name = name;
    (*out)->def = rkv_j_test(name->s, name->n);
    const jtoken *t = p->t;
    const int argument = t->type == T_NAME || t->type == T_STRING || t->type == T_NUMBER ||
                         t->type == '[' || t->type == '{';
    if (t->type == '(')
        RKV_TRY(parse_arguments(p, *out));
    else if (argument && !rkv_j_is_word(t, "else") && !rkv_j_is_word(t, "or") &&
             !rkv_j_is_word(t, "and"))
        RKV_TRY(parse_test_argument(p, *out));
    else
        RKV_TRY(no_arguments(p, *out));
    return negated ? rkv_j_make(p, N_NOT, line, out, 1, out) : RKV_OK;
}

static rkv_status parse_unary(jparser *p, jnode **out)
{
    const jtoken *sign = p->t;
    while (p->t->type == '-' || p->t->type == '+')
        p->t++;
    const jtoken *end = p->t;
    jnode *n;
    RKV_TRY(rkv_j_parse_primary(p, &n));
    RKV_TRY(parse_postfix(p, n, &n));
    while (end-- > sign)
        RKV_TRY(rkv_j_make(p, end->type == '-' ? N_NEGATIVE : N_POSITIVE, end->line, &n, 1, &n));
    for (;;) {
        if (p->t->type == '|')
            RKV_TRY(rkv_j_parse_filters(p, n, 0, &n));
        else if (rkv_j_is_word(p->t, "is"))
            RKV_TRY(parse_test(p, n, &n));
        else if (p->t->type == '(')
            RKV_TRY(parse_call(p, n, &n));
        else
            break;
    }
    *out = n;
    return RKV_OK;
}

/* ---- operators ------------------------------------------------------------------------------- */

typedef struct level level;
typedef int operator_at(jparser *p, const level *l);    /* its jop, or -1; moves past it */
struct level {
    jnode_type type;
    operator_at *find;
    rkv_status (*below)(jparser *p, jnode **out);
    struct {
        int token, op;
    } row[4];
};

static int math_operator(jparser *p, const level *l)
{
    for (int i = 0; i < 4 && l->row[i].token; i++)
        if (rkv_j_skip(p, l->row[i].token))
            return l->row[i].op;
    return -1;
}

static int word_operator(jparser *p, const level *l)
{
    return rkv_j_skip_word(p, l->type == N_AND ? "and" : "or") ? 0 : -1;
}

static int compare_operator(jparser *p, const level *l)
{
    static const struct {
        int token, op;
    } row[] = {{T_EQ, J_EQ}, {T_NE, J_NE}, {'<', J_LT}, {T_LE, J_LE}, {'>', J_GT}, {T_GE, J_GE}};
    (void)l;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (rkv_j_skip(p, row[i].token))
            return row[i].op;
    if (rkv_j_skip_word(p, "in"))
        return J_IN;
    if (!rkv_j_is_word(p->t, "not") || !rkv_j_is_word(p->t + 1, "in"))
        return -1;
    p->t += 2;
    return J_NOT_IN;
}

/* operand {operator operand}: one node for the whole chain. */
static rkv_status parse_chain(jparser *p, const level *l, jnode **out)
{
    const int line = p->t->line;
    uint8_t *op = NULL;
    jnodes kids = {0};
    for (int more = 1, n_op = 0; more;) {
        jnode *x;
        RKV_TRY(l->below(p, &x));
        RKV_TRY(rkv_j_add_node(p, &kids, x));
        const int found = l->find(p, l);
        more = found >= 0;
        if (more && (n_op & (n_op - 1)) == 0) {         /* room grows by powers of two */
            uint8_t *bigger = rkv_j_alloc(p->c, (size_t)n_op * 2 + 1);
            if (!bigger)
                return p->c->status;
            if (n_op)
                memcpy(bigger, op, (size_t)n_op);
            op = bigger;
        }
        if (more)
            op[n_op++] = (uint8_t)found;
    }
    *out = kids.v[0];
    if (kids.n == 1)
        return RKV_OK;
    RKV_TRY(rkv_j_make(p, l->type, line, kids.v, kids.n, out));
    (*out)->op = op;
    return RKV_OK;
}

static rkv_status parse_pow(jparser *p, jnode **out)
{
    static const level l = {N_MATH, math_operator, parse_unary, {{T_POW, J_POW}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_product(jparser *p, jnode **out)
{
    static const level l = {N_MATH, math_operator, parse_pow,
                            {{'*', J_MUL}, {'/', J_DIV}, {T_FLOORDIV, J_FLOORDIV}, {'%', J_MOD}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_concat(jparser *p, jnode **out)
{
    static const level l = {N_CONCAT, math_operator, parse_product, {{'~', 0}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_sum(jparser *p, jnode **out)
{
    static const level l = {N_MATH, math_operator, parse_concat, {{'+', J_ADD}, {'-', J_SUB}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_compare(jparser *p, jnode **out)
{
    static const level l = {N_COMPARE, compare_operator, parse_sum, {{0, 0}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_not(jparser *p, jnode **out)
{
    const jtoken *first = p->t;
    while (rkv_j_skip_word(p, "not"))
        ;
    const jtoken *end = p->t;
    RKV_TRY(parse_compare(p, out));
    while (end-- > first)
        RKV_TRY(rkv_j_make(p, N_NOT, end->line, out, 1, out));
    return RKV_OK;
}

static rkv_status parse_and(jparser *p, jnode **out)
{
    static const level l = {N_AND, word_operator, parse_not, {{0, 0}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_or(jparser *p, jnode **out)
{
    static const level l = {N_OR, word_operator, parse_and, {{0, 0}}};
    return parse_chain(p, &l, out);
}

static rkv_status parse_condition(jparser *p, jnode **out)
{
    int line = p->t->line;
    RKV_TRY(parse_or(p, out));
    while (rkv_j_skip_word(p, "if")) {
        jnode *kid[3] = {NULL, *out, NULL};
        RKV_TRY(parse_or(p, &kid[0]));
        if (rkv_j_skip_word(p, "else"))
            RKV_TRY(rkv_j_parse_expr(p, &kid[2]));
        RKV_TRY(rkv_j_make(p, N_CONDITION, line, kid, 3, out));
        line = p->t->line;
    }
    return RKV_OK;
}

static rkv_status nested(jparser *p, rkv_status (*parse)(jparser *, jnode **), jnode **out)
{
    if (++p->nesting > RKV_CHAT_MAX_NESTING) {
        p->c->line = p->t->line;
        return RKV_J_LIMIT(p->c, NESTING);
    }
    RKV_TRY(parse(p, out));
    p->nesting--;
    return RKV_OK;
}

rkv_status rkv_j_parse_expr(jparser *p, jnode **out)
{
    return nested(p, parse_condition, out);
}

rkv_status rkv_j_parse_tuple(jparser *p, int flags, const char *end, jnode **out)
{
    int line = p->t->line, is_tuple = 0;
    jnodes l = {0};
    for (;;) {
        const int type = p->t->type;
        if (type == T_PRINT_END || type == T_BLOCK_END || type == ')' ||
            (end && rkv_j_is_word(p->t, end)))
            break;
        jnode *x;
        RKV_TRY(nested(p, flags & J_NO_CONDITIONS ? parse_or : parse_condition, &x));
        RKV_TRY(rkv_j_add_node(p, &l, x));
        if (!rkv_j_skip(p, ','))
            break;
        is_tuple = 1;
        line = p->t->line;
    }
    if (!is_tuple && l.n) {
        *out = l.v[0];
        return RKV_OK;
    }
    if (!is_tuple && !(flags & J_IN_PARENTHESES))
        return rkv_j_syntax(p, "an expression");
    return rkv_j_make(p, N_TUPLE, line, l.v, l.n, out);
}
