#include "config.h"
#include "eval/store.h"

#ifdef HAVE_SQLITE

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/db.h"
#include "base/mem.h"

struct rkv_store {
    sqlite3 *db;
    sqlite3_int64 run;
    char path[1024];
};

/* writes: what failed was to keep something. */
static rkv_status failed(const rkv_store *s, int writes, const char *what, rkv_error *e)
{
    return rkv_fail(e, rkv_db_status(s->db, writes), "%s: %s: %s", s->path, what,
                    s->db ? sqlite3_errmsg(s->db) : "out of memory");
}

static rkv_status run(rkv_store *s, const char *sql, const char *what, rkv_error *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) ? failed(s, 1, what, e) : RKV_OK;
}

static rkv_status prepare(rkv_store *s, sqlite3_stmt **q, int writes, const char *sql,
                          rkv_error *e)
{
    *q = NULL;
    return sqlite3_prepare_v2(s->db, sql, -1, q, NULL)
               ? failed(s, writes, "cannot use the database", e) : RKV_OK;
}

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS run (id INTEGER PRIMARY KEY, signature TEXT UNIQUE NOT NULL,"
    " model TEXT NOT NULL, fingerprint TEXT NOT NULL, protocol TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS result (run INTEGER NOT NULL, sample TEXT NOT NULL,"
    " policy TEXT NOT NULL, budget TEXT NOT NULL, id TEXT NOT NULL, task TEXT NOT NULL,"
    " category TEXT NOT NULL, metric TEXT NOT NULL, state TEXT NOT NULL, score REAL, kl REAL,"
    " kept INTEGER, bytes INTEGER, bytes_full INTEGER, prompt_tokens INTEGER,"
    " question_tokens INTEGER, answer_tokens INTEGER, untouched INTEGER, depth REAL,"
    " length INTEGER, layers TEXT, answer TEXT, why TEXT,"
    " PRIMARY KEY (run, sample, policy, budget)) WITHOUT ROWID;";

static rkv_status find_run(rkv_store *s, const char *signature, const rkv_model_info *model,
                           char protocol, rkv_error *e)
{
    sqlite3_stmt *q;
    const char name[] = {protocol, 0};
    rkv_status status = prepare(s, &q, 1, "INSERT OR IGNORE INTO run (signature, model,"
                                " fingerprint, protocol) VALUES (?, ?, ?, ?)", e);
    if (!status && (sqlite3_bind_text(q, 1, signature, -1, SQLITE_STATIC) ||
                    sqlite3_bind_text(q, 2, model->name, -1, SQLITE_STATIC) ||
                    sqlite3_bind_text(q, 3, model->fingerprint, -1, SQLITE_STATIC) ||
                    sqlite3_bind_text(q, 4, name, -1, SQLITE_TRANSIENT) ||
                    sqlite3_step(q) != SQLITE_DONE))
        status = failed(s, 1, "cannot write", e);
    sqlite3_finalize(q);
    q = NULL;
    if (!status)
        status = prepare(s, &q, 0, "SELECT id FROM run WHERE signature = ?", e);
    if (!status && (sqlite3_bind_text(q, 1, signature, -1, SQLITE_STATIC) ||
                    sqlite3_step(q) != SQLITE_ROW))
        status = failed(s, 0, "cannot read", e);
    if (!status)
        s->run = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return status;
}

rkv_status rkv_store_open(rkv_store **out, const char *path, const char *signature,
                          const rkv_model_info *model, char protocol, rkv_error *e)
{
    rkv_store *s = rkv_mem_calloc(1, sizeof *s);
    if (!s)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    rkv_status status = RKV_OK;
    if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path)
        status = rkv_fail(e, RKV_E_ARG, "%.100s...: the path is too long", path);
    if (!status && sqlite3_open(path, &s->db))
        status = failed(s, 1, "cannot open", e);
    if (!status && rkv_db_set_up(s->db, tables))
        status = failed(s, 1, "cannot prepare the database", e);
    if (!status)
        status = find_run(s, signature, model, protocol, e);
    if (status) {
        rkv_store_close(s);
        return status;
    }
    *out = s;
    return RKV_OK;
}

void rkv_store_close(rkv_store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    rkv_mem_free(s);
}

static int column_of(const rkv_eval_options *o, const char *name, const char *budget)
{
    for (int c = 0; c <= o->n_policy; c++)
        if (!strcmp(name, rkv_eval_name(o, c)) && !strcmp(budget, rkv_eval_budget(o, c)))
            return c;
    return -1;
}

static double real_at(sqlite3_stmt *q, int i)
{
    return sqlite3_column_type(q, i) == SQLITE_NULL ? (double)NAN : sqlite3_column_double(q, i);
}

/* A column of text; 0: no memory. */
static int text_at(char **out, sqlite3_stmt *q, int i)
{
    const char *text = (const char *)sqlite3_column_text(q, i);
    *out = text ? rkv_mem_strdup(text) : NULL;
    return !text || *out;
}

static rkv_status read_row(rkv_eval_row *r, rkv_store *s, sqlite3_stmt *q, rkv_error *e)
{
    const char *state = (const char *)sqlite3_column_text(q, 2);
    if (!state || (strcmp(state, "done") && strcmp(state, "refused")))
        return rkv_fail(e, RKV_E_FORMAT, "%s: a result of state '%.20s', expected done or refused",
                        s->path, state ? state : "null");
    *r = (rkv_eval_row){
        .state = *state == 'd' ? RKV_EVAL_DONE : RKV_EVAL_REFUSED,
        .score = real_at(q, 3), .kl = real_at(q, 4), .kept = sqlite3_column_int64(q, 5),
        .bytes = (uint64_t)sqlite3_column_int64(q, 6),
        .bytes_full = (uint64_t)sqlite3_column_int64(q, 7), .n_prompt = sqlite3_column_int(q, 8),
        .n_question = sqlite3_column_int(q, 9), .n_answer = sqlite3_column_int(q, 10),
        .untouched = sqlite3_column_int(q, 11)};
    return text_at(&r->layers, q, 12) && text_at(&r->answer, q, 13) && text_at(&r->why, q, 14)
               ? RKV_OK : rkv_fail(e, RKV_E_MEM, "%s: out of memory", s->path);
}

static void write_key(char key[17], uint64_t sample)
{
    snprintf(key, 17, "%016llx", (unsigned long long)sample);
}

rkv_status rkv_store_get(rkv_store *s, rkv_eval_row *row, uint64_t sample,
                         const rkv_eval_options *o, rkv_error *e)
{
    char key[17];
    sqlite3_stmt *q;
    int step = SQLITE_DONE;
    if (!s)
        return RKV_OK;
    write_key(key, sample);
    rkv_status status = prepare(
        s, &q, 0, "SELECT policy, budget, state, score, kl, kept, bytes, bytes_full, prompt_tokens,"
        " question_tokens, answer_tokens, untouched, layers, answer, why FROM result"
        " WHERE run = ? AND sample = ?", e);
    if (!status && (sqlite3_bind_int64(q, 1, s->run) ||
                    sqlite3_bind_text(q, 2, key, -1, SQLITE_STATIC)))
        status = failed(s, 0, "cannot read", e);
    while (!status && (step = sqlite3_step(q)) == SQLITE_ROW) {
        const int c = column_of(o, (const char *)sqlite3_column_text(q, 0),
                                (const char *)sqlite3_column_text(q, 1));
        if (c >= 0 && row[c].state == RKV_EVAL_MISSING)
            status = read_row(&row[c], s, q, e);
    }
    if (!status && step != SQLITE_DONE)
        status = failed(s, 0, "cannot read", e);
    sqlite3_finalize(q);
    return status;
}

static int bind_real(sqlite3_stmt *q, int i, double v)
{
    return isnan(v) ? sqlite3_bind_null(q, i) : sqlite3_bind_double(q, i, v);
}

static int bind_text(sqlite3_stmt *q, int i, const char *text)
{
    return text ? sqlite3_bind_text(q, i, text, -1, SQLITE_STATIC) : sqlite3_bind_null(q, i);
}

/* Whether something could not be bound. */
static int bind_row(sqlite3_stmt *q, const rkv_eval_row *r, const rkv_sample *x, const char *name,
                    const char *budget)
{
    const int64_t numbers[] = {r->kept, (int64_t)r->bytes, (int64_t)r->bytes_full, r->n_prompt,
                               r->n_question, r->n_answer, r->untouched};
    int bad = bind_text(q, 3, name) | bind_text(q, 4, budget) | bind_text(q, 5, x->id) |
              bind_text(q, 6, x->task->name) |
              bind_text(q, 7, rkv_category_name(x->task->category)) |
              bind_text(q, 8, rkv_metric_name(x->task->metric)) |
              bind_text(q, 9, r->state == RKV_EVAL_DONE ? "done" : "refused") |
              bind_real(q, 10, r->score) | bind_real(q, 11, r->kl);
    for (int i = 0; i < 7; i++)
        bad |= sqlite3_bind_int64(q, 12 + i, numbers[i]);
    return bad | bind_real(q, 19, x->depth < 0.0 ? (double)NAN : x->depth) |
           sqlite3_bind_int(q, 20, x->length) | bind_text(q, 21, r->layers) |
           bind_text(q, 22, r->answer) | bind_text(q, 23, r->why);
}

static rkv_status insert(rkv_store *s, const rkv_eval_row *row, const rkv_sample *x,
                         const rkv_eval_options *o, rkv_error *e)
{
    char key[17];
    sqlite3_stmt *q;
    write_key(key, x->hash);
    rkv_status status = prepare(s, &q, 1, "INSERT OR IGNORE INTO result VALUES (?, ?, ?, ?, ?, ?,"
                                " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", e);
    for (int c = 0; !status && c <= o->n_policy; c++) {
        if (row[c].state == RKV_EVAL_MISSING)
            continue;
        if (sqlite3_bind_int64(q, 1, s->run) || bind_text(q, 2, key) ||
            bind_row(q, &row[c], x, rkv_eval_name(o, c), rkv_eval_budget(o, c)) ||
            sqlite3_step(q) != SQLITE_DONE || sqlite3_reset(q))
            status = failed(s, 1, "cannot write", e);
    }
    sqlite3_finalize(q);
    return status;
}

rkv_status rkv_store_put(rkv_store *s, const rkv_eval_row *row, const rkv_sample *x,
                         const rkv_eval_options *o, rkv_error *e)
{
    if (!s)
        return RKV_OK;
    RKV_TRY(run(s, "BEGIN IMMEDIATE", "cannot write", e));
    rkv_status status = insert(s, row, x, o, e);
    if (!status)
        status = run(s, "COMMIT", "cannot write", e);
    if (status)
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

#else

rkv_status rkv_store_open(rkv_store **out, const char *path, const char *signature,
                          const rkv_model_info *model, char protocol, rkv_error *e)
{
    (void)out, (void)signature, (void)model, (void)protocol;
    return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: this build cannot keep results: it was configured "
                    "without SQLite (libsqlite3-dev)", path);
}

void rkv_store_close(rkv_store *s)
{
    (void)s;
}

rkv_status rkv_store_get(rkv_store *s, rkv_eval_row *row, uint64_t sample,
                         const rkv_eval_options *o, rkv_error *e)
{
    (void)s, (void)row, (void)sample, (void)o, (void)e;
    return RKV_OK;
}

rkv_status rkv_store_put(rkv_store *s, const rkv_eval_row *row, const rkv_sample *x,
                         const rkv_eval_options *o, rkv_error *e)
{
    (void)s, (void)row, (void)x, (void)o, (void)e;
    return RKV_OK;
}

#endif
