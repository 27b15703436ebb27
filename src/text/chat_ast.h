/* Tokens, syntax tree, scopes and evaluation of the template interpreter.
 * A template becomes tokens (chat_lex.c), a tree (chat_parse.c, chat_expr.c), is checked as a whole
 * (chat_check.c), and the tree is walked (chat_exec.c, chat_eval.c). Grammar and meaning: the
 * documentation and behaviour of jinja2 3.1. */
#ifndef RKV_CHAT_AST_H
#define RKV_CHAT_AST_H

#include "text/chat_ops.h"

/* An interned identifier: equal names are equal pointers. */
typedef struct jname {
    size_t n;
    char s[];                   /* 0-terminated */
} jname;

/* Tokens. Operators of one character stand for themselves. */
typedef enum jtoken_type {
    T_EOF = 0,
    T_DATA = 256, T_BLOCK_BEGIN, T_BLOCK_END, T_PRINT_BEGIN, T_PRINT_END,
    T_NAME, T_STRING, T_NUMBER,
    T_FLOORDIV, T_POW, T_EQ, T_NE, T_GE, T_LE
} jtoken_type;

typedef struct jtoken {
    int type, line;
    const jname *name;          /* T_NAME */
    jval val;                   /* T_DATA, T_STRING, T_NUMBER */
} jtoken;

/* *tokens: array that ends with T_EOF. c->line is that of a failure. */
rkv_status rkv_j_lex(jctx *c, const char *text, size_t n, jtoken **tokens);
rkv_status rkv_j_intern(jctx *c, const char *s, size_t n, const jname **out);

typedef enum jnode_type {
    /* statements */
    N_BLOCK,            /* kid: statements. As the body of a scope: names: variables that are unset
                         * until this scope sets them, whatever is outside (see chat_check.c) */
    N_TEXT,             /* val */
    N_PRINT,            /* kid[0] */
    N_IF,               /* kid: test, body, test, body, ..., and the else body when n is odd */
    N_FOR,              /* kid: target, iterable, filter or NULL, body, else body or NULL */
    N_SET,              /* kid: target, value */
    N_SET_BLOCK,        /* kid: target, filters or NULL, body */
    N_WITH,             /* kid: target, value, ..., body */
    N_MACRO,            /* name (NULL: a caller); names: parameters; kid: their defaults (NULL:
                         * none), body */
    N_CALL_BLOCK,       /* kid: call, macro */
    N_FILTER_BLOCK,     /* kid: filters, body */
    N_SCOPE,            /* kid[0]: body ({% generation %}) */
    N_BREAK, N_CONTINUE,
    /* expressions */
    N_CONST,            /* val */
    N_NAME,             /* name */
    N_NAMESPACE_REF,    /* target ns.attr: name; val: attr */
    N_TUPLE, N_LIST,    /* kid */
    N_DICT,             /* kid: key, value, ... */
    N_MATH,             /* kid[n] joined by op[n - 1], from the left */
    N_CONCAT, N_AND, N_OR,      /* kid[n] */
    N_NOT, N_NEGATIVE, N_POSITIVE,
    N_COMPARE,          /* kid[n] chained by op[n - 1] */
    N_CONDITION,        /* kid: test, value, else value or NULL */
    N_ATTRIBUTE,        /* kid[0]; val: name */
    N_ITEM,             /* kid: object, key */
    N_SLICE,            /* kid: object, start, stop, step (NULL: not given) */
    N_CALL,             /* kid[0], args */
    N_FILTER, N_TEST,   /* kid[0], name, args, def; kid[0] NULL: the text captured by a block */
} jnode_type;

typedef struct jnode jnode;

/* Arguments as written. */
typedef struct jcallargs {
    jnode **pos;
    int n_pos, n_kw;
    const jname **name;
    jnode **kw;
    jnode *star, *star_star;    /* *args and **kwargs, or NULL */
} jcallargs;

enum { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4 };

struct jnode {
    uint8_t type, depth;
    uint8_t uses;               /* N_MACRO: special variables that its body mentions */
    int line, n, n_name;
    jnode **kid;
    const uint8_t *op;
    jval val;
    const jname *name;
    const jname **names;
    const jcallargs *args;
    const jdef *def;
};

/* Which special variables the bodies of the macros around a place mention. */
typedef struct jmacro_uses {
    struct jmacro_uses *up;
    int uses;
} jmacro_uses;

typedef struct jparser {
    jctx *c;
    const jtoken *t;            /* the current token */
    int nesting;                /* of expressions being parsed */
    int block_nesting;
    int loops;                  /* around this place within the same function: break is allowed */
    int for_tags;               /* around this place, through all functions: loop cannot be set */
    jmacro_uses *uses;          /* innermost first */
} jparser;

/* *out: the tree of a whole template. */
rkv_status rkv_j_parse(jctx *c, const jtoken *tokens, jnode **out);

/* Between chat_parse.c and chat_expr.c. */

/* A growing list of nodes. */
typedef struct jnodes {
    jnode **v;
    int n, cap;
} jnodes;
rkv_status rkv_j_add_node(jparser *p, jnodes *l, jnode *n);
/* A node with a copy of n kids (some may be NULL) at a line. */
rkv_status rkv_j_make(jparser *p, jnode_type type, int line, jnode *const *kid, int n, jnode **out);
/* "expected ..., found ..." at the current token. */
rkv_status rkv_j_syntax(jparser *p, const char *expected);
rkv_status rkv_j_expect(jparser *p, int type, const char *what);
int rkv_j_is_word(const jtoken *t, const char *word);
int rkv_j_skip_word(jparser *p, const char *word);
int rkv_j_skip(jparser *p, int type);
rkv_status rkv_j_parse_expr(jparser *p, jnode **out);           /* with inline if */
rkv_status rkv_j_parse_primary(jparser *p, jnode **out);
/* Expressions separated by commas are a tuple; end: a word that ends it, or NULL. */
enum { J_NO_CONDITIONS = 1, J_IN_PARENTHESES = 2 };
rkv_status rkv_j_parse_tuple(jparser *p, int flags, const char *end, jnode **out);
/* Filters on base (NULL: on a captured block); first: the first | is left out. */
rkv_status rkv_j_parse_filters(jparser *p, jnode *base, int first, jnode **out);

/* Checks of the whole tree that jinja2 does when it compiles; fills names of N_BLOCK. */
rkv_status rkv_j_check(jctx *c, jnode *root);

/* ---- scopes and evaluation ------------------------------------------------------------------- */

typedef struct jbinding {
    const jname *name;
    jval v;                     /* J_ABSENT: unset */
} jbinding;

typedef struct jscope {
    struct jscope *up;
    jbinding *v;
    size_t n, cap;
} jscope;

typedef struct jmacro {
    const jnode *node;
    jscope *scope;              /* where it was defined */
} jmacro;

typedef struct jloop {
    jiter *iter;
    jval over;
    int64_t index0, length;     /* length -1: not known yet */
    jval current, before, after;        /* J_ABSENT: none; after: read ahead */
    int ended;                  /* reading ahead found the end */
    jval last_changed;
} jloop;

/* chat.c: renders into c->out of a context that is zero but for e; what steps and memory hold
 * beforehand counts against their limits. rkv_j_free_all afterwards, in any case. */
rkv_status rkv_j_render(jctx *c, const char *text, size_t n, const cJSON *vars);
/* chat_exec.c */
rkv_status rkv_j_exec(jctx *c, const jnode *n);
rkv_status rkv_j_push_scope(jctx *c, jscope *up, const jnode *body, jscope **out);
rkv_status rkv_j_set_name(jctx *c, const jname *name, const jval *v);
rkv_status rkv_j_loop_next(jctx *c, jloop *l, jval *out, int *more);
rkv_status rkv_j_loop_length(jctx *c, jloop *l, int64_t *n);
rkv_status rkv_j_loop_attribute(jctx *c, jloop *l, const char *s, size_t n, jval *out);
/* chat_eval.c */
rkv_status rkv_j_eval(jctx *c, const jnode *n, jval *out);
/* Arguments of a call, evaluated; extra: one more keyword (caller), or NULL. */
rkv_status rkv_j_eval_args(jctx *c, const jcallargs *a, const jkeyword *extra, jargs *out);

#endif
