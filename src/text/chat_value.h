/* Values, memory and text of the template interpreter (j: Jinja). Private to chat*.c.
 *
 * Everything that a rendering makes lives in an arena of its context and is freed at its end, so
 * that functions simply return on failure. Values are small and passed by value or const pointer;
 * strings are immutable, borrowed (template, variables) or in the arena, and not 0-terminated;
 * lists and dicts are shared by reference, as in Python. Functions that return a status have filled
 * the error. An out parameter may not be one of the inputs, unless a comment allows it. */
#ifndef RKV_CHAT_VALUE_H
#define RKV_CHAT_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/err.h"
#include "base/json.h"

/* What a template may take. Passing one is RKV_E_ARG with its name. */
enum {
    RKV_CHAT_MAX_TEMPLATE = 1 << 20,    /* bytes of template text */
    RKV_CHAT_MAX_NESTING = 64,          /* levels of blocks, of expressions, of data */
    RKV_CHAT_MAX_CALLS = 64,            /* macros called from within macros */
    RKV_CHAT_MAX_DEPTH = 1000,          /* nodes under evaluation, through all macros */
    RKV_CHAT_MAX_STEPS = 20000000,      /* nodes evaluated, items and bytes handled (weighted) */
    RKV_CHAT_MAX_RANGE = 100000,        /* length of a range, as in jinja2's sandbox */
    RKV_CHAT_MAX_ITEMS = 1 << 20,       /* of one list or dict */
    RKV_CHAT_MAX_STRING = 64 << 20,     /* bytes of one string */
    RKV_CHAT_MAX_OUTPUT = 64 << 20,     /* bytes of output, with captured blocks in progress */
    RKV_CHAT_MAX_MEMORY = 256 << 20     /* bytes of all values */
};
/* Fails for the limit RKV_CHAT_MAX_<name>. */
#define RKV_J_LIMIT(c, name) rkv_j_limit((c), #name, RKV_CHAT_MAX_##name)

typedef struct jctx jctx;
typedef struct jval jval;
typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jiter jiter;
typedef struct jdef jdef;

typedef enum jkind {
    J_ABSENT,           /* no value: an argument not given, a variable before its first set */
    J_UNDEFINED,        /* jinja2's Undefined; sub says how s, n or i describe it */
    J_NONE,
    J_BOOL,             /* i */
    J_INT,              /* i */
    J_FLOAT,            /* f */
    J_STRING,           /* s, n; safe: markupsafe's Markup */
    J_LIST,             /* list */
    J_TUPLE,            /* list; sub: 1 for a pair of the groupby filter */
    J_DICT,             /* dict */
    J_VIEW,             /* dict; sub: a jview */
    J_RANGE,            /* range */
    J_ITERATOR,         /* iter: consumed as it is read */
    J_NAMESPACE,        /* dict */
    J_LOOP,             /* the variable loop: loop */
    J_MACRO,            /* macro */
    J_FUNCTION,         /* def: a global function */
    J_METHOD,           /* method: a function bound to its object */
    J_CYCLER,           /* list; its position is list->pos */
    J_JOINER,           /* list: the separator; list->pos: used before */
    J_N_KIND
} jkind;

typedef enum jview { J_KEYS, J_VALUES, J_ITEMS } jview;

/* How an undefined value came about. */
typedef enum jmissing {
    J_NO_NAME,          /* s, n: name of a variable */
    J_NO_ATTRIBUTE,     /* s, n: name of an attribute; of: kind of the object */
    J_NO_ELEMENT,       /* i: index; of: kind of the object */
    J_HINT              /* s, n: the message itself */
} jmissing;

typedef struct jrange {
    int64_t start, stop, step;
} jrange;

struct jval {
    uint8_t kind, sub, safe, of;
    union {
        int64_t i;
        double f;
        size_t n;
    };
    union {
        const char *s;
        jlist *list;
        jdict *dict;
        jiter *iter;
        const jrange *range;
        struct jloop *loop;
        const struct jmacro *macro;
        const jdef *def;
        const struct jmethod *method;
        const void *p;
    };
};

struct jlist {
    jval *v;
    size_t n, cap, pos;
};

typedef struct jpair {
    jval key, value;
} jpair;

struct jdict {
    jpair *v;
    size_t n, cap;
};

typedef struct jmethod {
    const jdef *def;
    jval self;
} jmethod;

/* A keyword argument. */
typedef struct jkeyword {
    const char *s;
    size_t n;
    jval v;
} jkeyword;

/* Arguments of a call. After binding to a definition with named parameters there are exactly as
 * many positional values as it has parameters, J_ABSENT where none was given, and no keywords. */
typedef struct jargs {
    jval *v;
    int n;
    jkeyword *kw;
    int n_kw;
} jargs;

/* A function of the library: filter, test, method or global. params lists the parameter names
 * ("old,new,count?", ? marks optional ones, a digit for a name makes it positional only); "*" takes
 * the call as it is. fn NULL: jinja2 has it, we do not. */
typedef rkv_status jfn(jctx *c, const jval *self, const jargs *a, jval *out);
struct jdef {
    const char *name;
    jfn *fn;
    const char *params;
    int text;           /* self is turned into a string first */
};

typedef struct jblock jblock;

struct jctx {
    rkv_error *e;
    rkv_status status;          /* of the failure reported last */
    int line;                   /* of the template, under evaluation */
    int depth, calls, data_depth;
    int64_t steps;
    jblock *block;              /* arena, newest first */
    size_t memory;              /* bytes taken by it */
    rkv_text out;               /* the output; captured blocks and strings in the making stack up
                                 * at its end */
    struct jname **names;       /* interned identifiers, open hash table */
    size_t n_name, cap_name;
    struct jscope *scope;
    const jval *captured;       /* the text that a filter block works on */
    const struct jname *loop;   /* the word */
    const jdict *vars;          /* the caller's variables */
    int flow;                   /* a break or continue on its way to its loop */
};

/* ---- failing (chat_value.c) ------------------------------------------------------------------ */

/* "chat template line 7: ..." */
rkv_status rkv_j_fail(jctx *c, rkv_status s, const char *format, ...) RKV_PRINTF(3, 4);
rkv_status rkv_j_limit(jctx *c, const char *name, int value);
/* n more units of work. */
rkv_status rkv_j_step(jctx *c, size_t n);
/* One level further into nested data; c->data_depth-- on the way back. */
rkv_status rkv_j_enter(jctx *c);
/* Name of a kind as Python calls the type. */
const char *rkv_j_type(const jval *v);

/* ---- memory and making values (chat_value.c) ------------------------------------------------- */

/* n bytes, 16-byte aligned; NULL: c->status says why. */
void *rkv_j_alloc(jctx *c, size_t n);
void rkv_j_free_all(jctx *c);

jval rkv_j_none(void);
jval rkv_j_bool(int b);
jval rkv_j_int(int64_t i);
jval rkv_j_float(double f);
/* Borrows. */
jval rkv_j_string(const char *s, size_t n);
jval rkv_j_literal(const char *s);
/* out = copy of n bytes. */
rkv_status rkv_j_copy(jctx *c, const char *s, size_t n, jval *out);
/* out = a's bytes followed by b's. Cheap when a is the newest string. out may be a. */
rkv_status rkv_j_concat(jctx *c, const jval *a, const jval *b, jval *out);
/* An empty list (J_LIST or J_TUPLE) with room for cap items; dict (J_DICT or J_NAMESPACE). */
rkv_status rkv_j_list(jctx *c, jkind kind, size_t cap, jval *out);
rkv_status rkv_j_append(jctx *c, jlist *l, const jval *v);
void rkv_j_reverse(jlist *l);
rkv_status rkv_j_dict(jctx *c, jkind kind, size_t cap, jval *out);
/* Whether Python lets it be a key. */
int rkv_j_is_hashable(const jval *key);
/* Value at a key, NULL when there is none. Fails for a key that Python cannot hash. */
rkv_status rkv_j_find(jctx *c, const jdict *d, const jval *key, jval **out);
jval *rkv_j_find_string(const jdict *d, const char *s, size_t n);
rkv_status rkv_j_set_item(jctx *c, jdict *d, const jval *key, const jval *value);
/* The value that json stands for; strings are borrowed from it. */
rkv_status rkv_j_from_json(jctx *c, const cJSON *json, jval *out);
rkv_status rkv_j_pair(jctx *c, const jval *a, const jval *b, jval *out);

/* ---- text (chat_text.c) ---------------------------------------------------------------------- */

/* Strings are made at the end of c->out: size_t mark = c->out.n, put ..., then rkv_j_take. */
rkv_status rkv_j_put(jctx *c, const char *s, size_t n);
rkv_status rkv_j_put_times(jctx *c, const char *s, size_t n, int64_t times);
rkv_status rkv_j_put_char(jctx *c, uint32_t cp);
rkv_status rkv_j_take(jctx *c, size_t mark, jval *out);
/* Python's str() and repr(). */
rkv_status rkv_j_put_str(jctx *c, const jval *v);
rkv_status rkv_j_put_repr(jctx *c, const jval *v);
/* v itself when it is a string, else its str(). out may be v. */
rkv_status rkv_j_to_string(jctx *c, const jval *v, jval *out);
/* Shortest decimal text that gives f back, as Python writes it; buf holds 32. */
void rkv_j_float_text(double f, char *buf);
/* Python's float(): 1 and *f when n bytes are a number. */
int rkv_j_parse_float(const char *s, size_t n, double *f);
/* Python's int(text, base): 1 ok, 0 not a number, -1 beyond 64 bits. */
int rkv_j_parse_int(const char *s, size_t n, int base, int64_t *i);
/* json.dumps as transformers sets it up; item and key: the separators; indent NULL: one line. */
rkv_status rkv_j_put_json(jctx *c, const jval *v, const jval *indent, const jval *item,
                          const jval *key, int flags);
enum { J_JSON_ASCII = 1, J_JSON_SORT = 2 };

/* Code points. Bytes that are not UTF-8 count as one each and are passed through: *cp is then
 * 0xdc00 + byte. n >= 1. */
size_t rkv_j_decode(const char *s, size_t n, uint32_t *cp);
size_t rkv_j_encode(uint32_t cp, char *buf);
size_t rkv_j_length(const char *s, size_t n);
/* Byte offset of code point i, n when there are fewer. */
size_t rkv_j_offset(const char *s, size_t n, size_t i);
int rkv_j_is_space(uint32_t cp);
int rkv_j_is_printable(uint32_t cp);

#endif
