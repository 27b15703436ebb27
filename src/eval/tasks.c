#include "config.h"
#include "eval/tasks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define CHAT RKV_TASK_CHAT
#define LINE RKV_TASK_LINE
#define STOP RKV_TASK_STOP
#define EN RKV_TASK_EN
#define RKV_TASK(name, category, metric, max_gen, flags, text, cue)                                \
    {#name, RKV_CATEGORY_##category, RKV_METRIC_##metric, max_gen, flags, text, cue},
static const rkv_task tasks[] = {
#include "eval/tasks.def"
};
#undef RKV_TASK
enum { N_TASK = sizeof tasks / sizeof *tasks };

const rkv_task *rkv_task_at(int i)
{
    return i >= 0 && i < N_TASK ? &tasks[i] : NULL;
}

const rkv_task *rkv_task_find(const char *name)
{
    for (int i = 0; i < N_TASK; i++) {
        const size_t n = strlen(tasks[i].name);
        if (!strncmp(name, tasks[i].name, n) && (!name[n] || !strcmp(name + n, "_e")))
            return &tasks[i];
    }
    return NULL;
}

/* The name behind this one in a list; NULL: none. */
static const char *next_name(const char *p)
{
    const char *comma = strchr(p, ',');
    return comma ? comma + 1 : NULL;
}

int rkv_task_is_listed(const rkv_task *t, const char *list)
{
    const size_t n = strlen(t->name);
    for (const char *p = list; p; p = next_name(p))
        if (strcspn(p, ",") == n && !memcmp(p, t->name, n))
            return 1;
    return !list;
}

rkv_status rkv_tasks_check_list(const char *list, rkv_error *e)
{
    char name[64];
    for (const char *p = list; p; p = next_name(p)) {
        snprintf(name, sizeof name, "%.*s", (int)(strcspn(p, ",") & 0xffff), p);
        if (!rkv_task_find(name))
            return rkv_fail(e, RKV_E_ARG, "task '%s' is unknown; expected such as narrativeqa, "
                            "hotpotqa, gov_report, trec, lcc, niah_single_1, passkey, other", name);
    }
    return RKV_OK;
}

const char *rkv_category_name(enum rkv_category c)
{
    static const char *const names[RKV_N_CATEGORY] = {
        "single-doc QA", "multi-doc QA", "summarization", "few-shot", "synthetic", "code", "RULER",
        "needle", "other",
    };
    return names[c];
}

rkv_status rkv_task_score(double *out, const rkv_task *t, const char *prediction,
                          const rkv_reference *r, rkv_error *e)
{
    if (!(t->flags & RKV_TASK_LINE))
        return rkv_metric_score(out, t->metric, prediction, r, e);
    prediction += strspn(prediction, "\n");
    char *line = rkv_mem_strdup(prediction);
    if (!line)
        return rkv_fail(e, RKV_E_MEM, "score: out of memory");
    line[strcspn(line, "\n")] = 0;
    const rkv_status s = rkv_metric_score(out, t->metric, line, r, e);
    rkv_mem_free(line);
    return s;
}
