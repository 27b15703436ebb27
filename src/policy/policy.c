/* Names, options and the registry of selectors and allocators. */
#include "config.h"
#include "policy/policy.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define RKV_SELECTOR(name) extern const rkv_selector rkv_selector_##name;
#define RKV_ALLOCATOR(name) extern const rkv_allocator rkv_allocator_##name;
#include "policy/policy.def"
#undef RKV_SELECTOR
#undef RKV_ALLOCATOR

static const rkv_selector *const selectors[] = {
#define RKV_SELECTOR(name) &rkv_selector_##name,
#include "policy/policy.def"
#undef RKV_SELECTOR
};
static const rkv_allocator *const allocators[] = {
#define RKV_ALLOCATOR(name) &rkv_allocator_##name,
#include "policy/policy.def"
#undef RKV_ALLOCATOR
};
static const struct {
    const char *name, *pair;
} shorthands[] = {
#define RKV_SHORTHAND(name, pair) {#name, pair},
#include "policy/policy.def"
#undef RKV_SHORTHAND
};

static const struct {
    const char *name;
    size_t offset;              /* of an int in rkv_policy */
} modifiers[] = {
#define RKV_MODIFIER(name) {#name, offsetof(rkv_policy, name)},
#include "policy/policy.def"
#undef RKV_MODIFIER
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

const rkv_selector *rkv_selector_find(const char *name)
{
    for (size_t i = 0; name && i < COUNT(selectors); i++)
        if (!strcmp(selectors[i]->name, name))
            return selectors[i];
    return NULL;
}

const rkv_allocator *rkv_allocator_find(const char *name)
{
    for (size_t i = 0; name && i < COUNT(allocators); i++)
        if (!strcmp(allocators[i]->name, name))
            return allocators[i];
    return NULL;
}

rkv_policy rkv_policy_default(void)
{
    return (rkv_policy){.selector = "full", .allocator = "uniform", .budget_kind = RKV_BUDGET_NONE,
                        .window = 32, .n_sink = RKV_FLOOR_EXTRA, .pool_kernel = 7, .ratio = 1.5,
                        .gamma = 2.0, .recent = 512, .beta = 20.0, .n_future = 512,
                        .use_covariance = 1, .use_value_norm = 1, .safeguard = 0.2,
                        .first_stage = 0.5, .critical_epsilon = 1e-4};
}

/* Appends ", name" to a message in the making. */
static void list_name(char *text, size_t size, const char *name)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? ", " : "", name);
}

static rkv_status unknown_name(const char *name, rkv_error *e)
{
    char shorthand[160] = "", selector[100] = "", allocator[100] = "";
    for (size_t i = 0; i < COUNT(shorthands); i++)
        list_name(shorthand, sizeof shorthand, shorthands[i].name);
    for (size_t i = 0; i < COUNT(selectors); i++)
        list_name(selector, sizeof selector, selectors[i]->name);
    for (size_t i = 0; i < COUNT(allocators); i++)
        list_name(allocator, sizeof allocator, allocators[i]->name);
    return rkv_fail(e, RKV_E_ARG,
                    "policy '%.40s': expected one of %s, or SELECTOR:ALLOCATOR with a "
                    "selector of %s and an allocator of %s, perhaps with +%s or +%s behind it",
                    name, shorthand, selector, allocator, modifiers[0].name, modifiers[1].name);
}

/* "selector:allocator", n bytes. */
static int set_pair(rkv_policy *p, const char *pair, size_t n)
{
    static const char *const separators[] = {":", "x", "\xc3\x97"};
    char text[80];
    if (n >= sizeof text)
        return 0;
    memcpy(text, pair, n);
    text[n] = 0;
    for (size_t i = 0; i < COUNT(separators); i++)
        for (char *at = strstr(text, separators[i]); at; at = strstr(at + 1, separators[i])) {
            const char kept = *at;
            *at = 0;
            const rkv_selector *s = rkv_selector_find(text);
            const rkv_allocator *a = rkv_allocator_find(at + strlen(separators[i]));
            *at = kept;
            if (s && a) {
                p->selector = s->name;
                p->allocator = a->name;
                return 1;
            }
        }
    return 0;
}

/* "+name" once or more, or nothing. */
static int set_modifiers(rkv_policy *p, const char *text)
{
    while (*text) {
        const size_t n = strcspn(++text, "+");
        size_t i = 0;
        while (i < COUNT(modifiers) &&
               (strlen(modifiers[i].name) != n || memcmp(modifiers[i].name, text, n)))
            i++;
        if (i == COUNT(modifiers))
            return 0;
        *(int *)(void *)((char *)p + modifiers[i].offset) = 1;
        text += n;
    }
    return 1;
}

rkv_status rkv_policy_set_name(rkv_policy *p, const char *name, rkv_error *e)
{
    rkv_policy set = *p;
    const char *pair = name;
    const size_t n_name = strcspn(name, "+");
    for (size_t i = 0; i < COUNT(modifiers); i++)
        *(int *)(void *)((char *)&set + modifiers[i].offset) = 0;
    for (size_t i = 0; i < COUNT(shorthands); i++)
        if (strlen(shorthands[i].name) == n_name && !memcmp(shorthands[i].name, name, n_name))
            pair = shorthands[i].pair;
    const size_t n_pair = strcspn(pair, "+");
    if (!set_pair(&set, pair, n_pair) || !set_modifiers(&set, name + n_name) ||
        (pair != name && !set_modifiers(&set, pair + n_pair)))
        return unknown_name(name, e);
    *p = set;
    return RKV_OK;
}

rkv_status rkv_policy_set_budget(rkv_policy *p, const char *text, rkv_error *e)
{
    static const struct {
        const char *suffix;
        rkv_budget_kind kind;
        double unit;
    } form[] = {
        {"%", RKV_BUDGET_SHARE, 0.01}, {"", RKV_BUDGET_TOKENS, 1.0},
        {"k", RKV_BUDGET_BYTES, 0x1p10}, {"m", RKV_BUDGET_BYTES, 0x1p20},
        {"g", RKV_BUDGET_BYTES, 0x1p30},
    };
    if (!strcmp(text, "full") || !strcmp(text, "none")) {
        p->budget_kind = RKV_BUDGET_NONE;
        return RKV_OK;
    }
    /* Digits and one point only: strtod would also take "inf", hexadecimal, and the locale's comma.
     */
    double v = 0.0, place = 0.0;
    const char *c = text;
    for (; isdigit((unsigned char)*c) || (*c == '.' && place == 0.0); c++) {
        if (*c == '.')
            place = 1.0;
        else if (place == 0.0)
            v = v * 10.0 + (*c - '0');
        else
            v += (*c - '0') * (place /= 10.0);
    }
    char suffix[2] = {(char)tolower((unsigned char)*c), 0};
    if (c != text && (!*c || !c[1]))
        for (size_t i = 0; i < COUNT(form); i++)
            if (!strcmp(suffix, form[i].suffix)) {
                p->budget_kind = form[i].kind;
                p->budget = v * form[i].unit;
                return rkv_policy_check(p, e);
            }
    return rkv_fail(e, RKV_E_ARG,
                    "budget '%.40s': expected a share (20%%), tokens per layer and head "
                    "(4096), bytes (512M) or 'full'",
                    text);
}

int rkv_policy_active(const rkv_policy *p)
{
    const rkv_selector *s = rkv_selector_find(p->selector);
    return s && !s->keeps_all && p->budget_kind != RKV_BUDGET_NONE;
}

int rkv_policy_n_query(const rkv_policy *p)
{
    const rkv_selector *s = rkv_selector_find(p->selector);
    return s->n_query ? s->n_query(p) : 0;
}

int rkv_policy_observes(const rkv_policy *p)
{
    if (!rkv_policy_active(p))
        return 0;
    const rkv_selector *s = rkv_selector_find(p->selector);
    return (rkv_policy_n_query(p) ? RKV_OBSERVE_QUERIES : 0) |
           (s->needs_mass || (s->needs_recent && !p->recent) ? RKV_OBSERVE_MASS : 0) |
           (s->needs_recent && p->recent ? RKV_OBSERVE_RECENT : 0) |
           (s->needs_stats ? RKV_OBSERVE_STATS : 0);
}

/* The profile has what the policy's curves are read from: see rkv_curve_of. */
static int has_curves(const rkv_policy *p)
{
    const double *grid, *damage;
    const int heads = rkv_profile_curve(p->profile, p->curves_measured, 0, 0, &grid, &damage);
    const int layers = rkv_profile_curve(p->profile, p->curves_measured, 0, -1, &grid, &damage);
    return p->unit_layers ? layers || (heads && !p->curves_measured) : heads;
}

rkv_status rkv_policy_check_profile(const rkv_policy *p, rkv_error *e)
{
    const rkv_allocator *a = rkv_allocator_find(p->allocator);
    const int layers = p->unit_layers && p->curves_measured;
    const char *signals = !p->curves_measured ? "curves" : layers ? "layer-curves" : "head-curves";
    if (a->needs_profile && !p->profile)
        return rkv_fail(e, RKV_E_ARG,
                        "policy: allocator '%s' needs a profile of the model; make one with "
                        "rkv profile%s%s and name it with --kv-profile",
                        a->name, a->needs_curves ? " --signals " : "",
                        a->needs_curves ? signals : "");
    if (a->needs_budgets && !p->budgets)
        return rkv_fail(e, RKV_E_ARG, "policy: allocator '%s' needs budgets of your own; name a "
                        "file of them with --kv-budgets", a->name);
    if (a->needs_curves && !has_curves(p))
        return rkv_fail(e, RKV_E_MISMATCH,
                        "policy: allocator '%s': the profile has no %s damage curves of each %s; "
                        "make one that has with rkv profile --signals %s",
                        a->name, p->curves_measured ? "measured" : "estimated",
                        layers ? "layer" : "KV head", signals);
    return RKV_OK;
}

static rkv_status out_of_range(const char *what, double v, const char *range, rkv_error *e)
{
    return rkv_fail(e, RKV_E_ARG, "policy: %s is %g, expected %s", what, v, range);
}

/* Members with a range, which out_of_range shows. */
static rkv_status check_ranges(const rkv_policy *p, rkv_error *e)
{
    enum { MAX_WINDOW = 4096, MAX_KERNEL = 1023 };
    const struct {
        const char *what, *range;
        double v, low, high;
    } member[] = {
        {"window", "0 to 4096", p->window, 0, MAX_WINDOW},
        {"sinks", "0 to 4096", p->n_sink, 0, MAX_WINDOW},
        {"pooling kernel", "an odd number up to 1023", p->pool_kernel, 1, MAX_KERNEL},
        {"ratio r", "1 to 1e6", p->ratio, 1, 1e6},
        {"gamma", "1 to 1e6", p->gamma, 1, 1e6},
        {"beta", "1 to 1e6", p->beta, 1, 1e6},
        {"recent", "0 or more", p->recent, 0, INFINITY},
        {"future positions", "1 to 1000000", p->n_future, 1, 1e6},
        {"epsilon", "0 to 1e6", p->epsilon, 0, 1e6},
        {"safeguard", "0 to 1", p->safeguard, 0, 1},
        {"first stage", "0 to 1", p->first_stage, 0, 1},
        {"epsilon of criticalkv", "0 to 1e6", p->critical_epsilon, 0, 1e6},
        {"published", "0 or 1", p->published, 0, 1},
        {"use_covariance", "0 or 1", p->use_covariance, 0, 1},
        {"use_value_norm", "0 or 1", p->use_value_norm, 0, 1},
        {"adakv", "0 or 1", p->adakv, 0, 1},
        {"adakv_forced", "0 or 1", p->adakv_forced, 0, 1},
        {"criticalkv", "0 or 1", p->criticalkv, 0, 1},
        {"curves_measured", "0 or 1", p->curves_measured, 0, 1},
        {"unit_layers", "0 or 1", p->unit_layers, 0, 1},
    };
    for (size_t i = 0; i < COUNT(member); i++)
        if (!(member[i].v >= member[i].low && member[i].v <= member[i].high))
            return out_of_range(member[i].what, member[i].v, member[i].range, e);
    return p->pool_kernel % 2 ? RKV_OK : out_of_range("pooling kernel", p->pool_kernel,
                                                      "an odd number up to 1023", e);
}

/* What a selector cannot do. */
static rkv_status check_selector(const rkv_policy *p, const rkv_selector *s, rkv_error *e)
{
    if (!p->window && s->needs_window)
        return rkv_fail(e, RKV_E_ARG, "policy: window is 0, expected 1 to 4096 with selector '%s', "
                        "which observes by it", s->name);
    if (p->adakv && !p->adakv_forced && !s->queries && !s->keeps_all)
        return rkv_fail(e, RKV_E_ARG, "policy: adakv weighs heads by their attention, which "
                        "selector '%s' does not score by; choose another, or the form of kvpress",
                        s->name);
    if (p->criticalkv && !s->queries && !s->keeps_all)
        return rkv_fail(e, RKV_E_ARG, "policy: criticalkv multiplies attention with what values "
                        "add, and selector '%s' does not score by attention", s->name);
    return RKV_OK;
}

rkv_status rkv_policy_check(const rkv_policy *p, rkv_error *e)
{
    const rkv_selector *s = rkv_selector_find(p->selector);
    if (!s)
        return rkv_fail(e, RKV_E_ARG, "policy: unknown selector '%.40s'",
                        p->selector ? p->selector : "");
    if (!rkv_allocator_find(p->allocator))
        return rkv_fail(e, RKV_E_ARG, "policy: unknown allocator '%.40s'",
                        p->allocator ? p->allocator : "");
    RKV_TRY(check_ranges(p, e));
    RKV_TRY(check_selector(p, s, e));
    if (p->budget_kind == RKV_BUDGET_SHARE && !(p->budget > 0.0 && p->budget <= 1.0))
        return out_of_range("budget in %", 100.0 * p->budget, "more than 0 and at most 100", e);
    if (p->budget_kind != RKV_BUDGET_NONE && !(p->budget > 0.0 && p->budget < 1e18))
        return out_of_range("budget", p->budget, "a positive number", e);
    return RKV_OK;
}

int rkv_policy_scores_alike(const rkv_policy *a, const rkv_policy *b)
{
    return a->selector && b->selector && !strcmp(a->selector, b->selector) &&
           a->window == b->window && a->n_sink == b->n_sink && a->pool_kernel == b->pool_kernel &&
           a->pool_average == b->pool_average && a->pool_before_mean == b->pool_before_mean &&
           a->recent == b->recent && a->seed == b->seed && a->n_future == b->n_future &&
           a->use_covariance == b->use_covariance && a->use_value_norm == b->use_value_norm &&
           a->epsilon == b->epsilon;
}
