/* Names, options and the registry of selectors and allocators. */
#include "config.h"
#include "policy/policy.h"

#include <ctype.h>
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
    const char *name, *selector, *allocator;
} shorthands[] = {
#define RKV_SHORTHAND(name, selector, allocator) {#name, #selector, #allocator},
#include "policy/policy.def"
#undef RKV_SHORTHAND
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
                        .window = 32, .pool_kernel = 7, .ratio = 1.5, .gamma = 2.0, .recent = 512};
}

/* Appends ", name" to a message in the making. */
static void list_name(char *text, size_t size, const char *name)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? ", " : "", name);
}

static rkv_status unknown_name(const char *name, rkv_error *e)
{
    char shorthand[100] = "", selector[100] = "", allocator[100] = "";
    for (size_t i = 0; i < COUNT(shorthands); i++)
        list_name(shorthand, sizeof shorthand, shorthands[i].name);
    for (size_t i = 0; i < COUNT(selectors); i++)
        list_name(selector, sizeof selector, selectors[i]->name);
    for (size_t i = 0; i < COUNT(allocators); i++)
        list_name(allocator, sizeof allocator, allocators[i]->name);
    return rkv_fail(e, RKV_E_ARG,
                    "policy '%.40s': expected one of %s, or SELECTOR:ALLOCATOR with a "
                    "selector of %s and an allocator of %s",
                    name, shorthand, selector, allocator);
}

rkv_status rkv_policy_set_name(rkv_policy *p, const char *name, rkv_error *e)
{
    for (size_t i = 0; i < COUNT(shorthands); i++)
        if (!strcmp(shorthands[i].name, name)) {
            p->selector = shorthands[i].selector;
            p->allocator = shorthands[i].allocator;
            return RKV_OK;
        }
    static const char *const separators[] = {":", "x", "\xc3\x97"};
    for (size_t i = 0; i < COUNT(separators); i++)
        for (const char *at = strstr(name, separators[i]); at; at = strstr(at + 1, separators[i])) {
            char first[32];
            snprintf(first, sizeof first, "%.*s", (int)(at - name < 31 ? at - name : 31), name);
            const rkv_selector *s = rkv_selector_find(first);
            const rkv_allocator *a = rkv_allocator_find(at + strlen(separators[i]));
            if (s && a) {
                p->selector = s->name;
                p->allocator = a->name;
                return RKV_OK;
            }
        }
    return unknown_name(name, e);
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
           (s->needs_recent && p->recent ? RKV_OBSERVE_RECENT : 0);
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

rkv_status rkv_policy_check(const rkv_policy *p, rkv_error *e)
{
    enum { MAX_WINDOW = 4096, MAX_KERNEL = 1023 };
    const rkv_allocator *a = rkv_allocator_find(p->allocator);
    if (!rkv_selector_find(p->selector))
        return rkv_fail(e, RKV_E_ARG, "policy: unknown selector '%.40s'",
                        p->selector ? p->selector : "");
    if (!a)
        return rkv_fail(e, RKV_E_ARG, "policy: unknown allocator '%.40s'",
                        p->allocator ? p->allocator : "");
    if (p->window < 1 || p->window > MAX_WINDOW)
        return out_of_range("window", p->window, "1 to 4096", e);
    if (p->pool_kernel < 1 || p->pool_kernel > MAX_KERNEL || p->pool_kernel % 2 == 0)
        return out_of_range("pooling kernel", p->pool_kernel, "an odd number up to 1023", e);
    if (!(p->ratio >= 1.0 && p->ratio <= 1e6))
        return out_of_range("ratio r", p->ratio, "1 to 1e6", e);
    if (!(p->gamma >= 1.0 && p->gamma <= 1e6))
        return out_of_range("gamma", p->gamma, "1 to 1e6", e);
    if (p->recent < 0)
        return out_of_range("recent", p->recent, "0 or more", e);
    if (p->curves_measured < 0 || p->curves_measured > 1)
        return out_of_range("curves_measured", p->curves_measured, "0 or 1", e);
    if (p->unit_layers < 0 || p->unit_layers > 1)
        return out_of_range("unit_layers", p->unit_layers, "0 or 1", e);
    if (p->budget_kind == RKV_BUDGET_SHARE && !(p->budget > 0.0 && p->budget <= 1.0))
        return out_of_range("budget in %", 100.0 * p->budget, "more than 0 and at most 100", e);
    if (p->budget_kind != RKV_BUDGET_NONE && !(p->budget > 0.0 && p->budget < 1e18))
        return out_of_range("budget", p->budget, "a positive number", e);
    return RKV_OK;
}
