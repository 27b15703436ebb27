/* Words, and samples of a wanted length. */
#include "config.h"
#include "eval/made.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "noise.h"
#include "eval/eval.h"

/* ---- words ---- */

static const char *const adjectives[32] = {
    "amber", "brisk", "calm", "dusty", "eager", "faded", "gentle", "hollow", "icy", "jolly", "keen",
    "lively", "misty", "narrow", "old", "pale", "quiet", "rusty", "silent", "tall", "useful",
    "vivid", "warm", "young", "bright", "crooked", "distant", "early", "friendly", "golden",
    "hidden", "modest"};
static const char *const nouns[32] = {
    "anchor", "basket", "candle", "drawer", "engine", "feather", "garden", "hammer", "island",
    "jacket", "kettle", "ladder", "meadow", "needle", "orchard", "pencil", "quarry", "ribbon",
    "saddle", "tunnel", "umbrella", "valley", "window", "yard", "barrel", "curtain", "ditch",
    "envelope", "fountain", "glacier", "harbor", "lantern"};
static const char *const verbs[16] = {
    "faced", "passed", "crossed", "touched", "followed", "covered", "joined", "carried", "held",
    "reached", "guarded", "supported", "met", "outlasted", "surrounded", "matched"};
static const char *const times[16] = {
    "In spring", "By noon", "After the storm", "Every winter", "At the market", "Near the bridge",
    "On Tuesday", "Long ago", "Before dawn", "That evening", "Across the bay", "As the map says",
    "In the north", "During the fair", "For a while", "Without a sound"};
static const char *const syllables[30] = {
    "ba", "ko", "ri", "ten", "lu", "mar", "so", "vi", "del", "na", "pu", "gor", "shi", "fen", "wa",
    "zo", "kel", "mi", "tra", "hu", "bren", "da", "lo", "nis", "ve", "qua", "sil", "to", "rum",
    "ja"};
static const char *const first_names[32] = {
    "Ada", "Bruno", "Clara", "Dario", "Elsa", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Kira",
    "Liam", "Mara", "Nils", "Olga", "Pavel", "Rosa", "Simon", "Tilda", "Urban", "Vera", "Walter",
    "Xenia", "Yann", "Zora", "Anton", "Berta", "Casper", "Dora", "Emil", "Flora", "Gustav"};
static const char *const last_names[32] = {
    "Holt", "Brandt", "Keller", "Novak", "Lindqvist", "Moreau", "Santos", "Petrov", "Okafor",
    "Tanaka", "Weber", "Rossi", "Dubois", "Larsen", "Kowalski", "Silva", "Murphy", "Haas", "Vega",
    "Nowak", "Bauer", "Costa", "Fischer", "Jansen", "Kim", "Lang", "Meyer", "Orlov", "Quinn",
    "Ritter", "Stone", "Unger"};
static const char *const city_ends[16] = {
    "burg", "ville", "ton", "ford", "haven", "stad", "grad", "mouth", "field", "port", "wick",
    "dale", "ham", "by", "kirk", "bridge"};

int rkv_draw_below(rkv_draw *d, int n)
{
    return (int)((rkv_noise_word(d->key, d->n++) >> 32) * (uint64_t)n >> 32);
}

void rkv_made_sentence(rkv_text *t, rkv_draw *d)
{
    const int w[] = {rkv_draw_below(d, 16), rkv_draw_below(d, 32), rkv_draw_below(d, 32),
                     rkv_draw_below(d, 16), rkv_draw_below(d, 32), rkv_draw_below(d, 32)};
    rkv_text_printf(t, "%s the %s %s %s the %s %s. ", times[w[0]], adjectives[w[1]], nouns[w[2]],
                    verbs[w[3]], adjectives[w[4]], nouns[w[5]]);
}

/* A number below n, a power of 2 or a product of powers of 2, 3 and 5, different for every i below
 * n: 7919 has no factor in common with it. */
static int spread(uint64_t base, int i, int n)
{
    return (int)((base + (uint64_t)i * 7919) % (uint64_t)n);
}

void rkv_made_key(char out[48], uint64_t base, int i)
{
    const int k = spread(base, i, 32768);
    snprintf(out, 48, "%s-%s-%s", adjectives[k & 31], nouns[k >> 5 & 31], nouns[k >> 10]);
}

void rkv_made_number(char out[48], rkv_draw *d)
{
    snprintf(out, 48, "%d", 1000000 + rkv_draw_below(d, 9000000));
}

void rkv_made_uuid(char out[48], rkv_draw *d)
{
    unsigned w[4];
    for (int i = 0; i < 4; i++)
        w[i] = (unsigned)rkv_draw_below(d, 1 << 30);
    snprintf(out, 48, "%08x-%04x-4%03x-a%03x-%06x%06x", w[0], w[1] & 0xffff, w[1] >> 16 & 0xfff,
             w[2] & 0xfff, w[2] >> 12 & 0xffff, w[3] & 0xffffff);
}

void rkv_made_word(char out[48], uint64_t base, int i)
{
    const int k = spread(base, i, 27000);
    snprintf(out, 48, "%s%s%s", syllables[k % 30], syllables[k / 30 % 30], syllables[k / 900]);
}

void rkv_made_person(char out[48], uint64_t base, int i)
{
    const int k = spread(base, i, 1024);
    snprintf(out, 48, "%s %s", first_names[k & 31], last_names[k >> 5]);
}

void rkv_made_city(char out[48], uint64_t base, int i)
{
    const int k = spread(base, i, 240);
    snprintf(out, 48, "%s%s", syllables[k % 15], city_ends[k / 15]);
    out[0] = (char)(out[0] - 'a' + 'A');
}

/* ---- length ---- */

typedef struct maker {
    const rkv_model *m;
    const rkv_eval_options *o;
    const rkv_task *task;
    uint64_t key;
    int length;
    double depth;
} maker;

static void clear(rkv_made *s)
{
    rkv_text_free(&s->text);
    *s = (rkv_made){.depth = -1.0};
}

/* Tokens over the length of a sample of this size, with its answer; the sample is in *s. */
static rkv_status try_size(rkv_made *s, double *over, const maker *k, int size, rkv_error *e)
{
    size_t n;
    const rkv_eval_options *o = k->o;
    if (o->progress && o->progress(o->progress_ctx, "samples", 0, 0))
        return rkv_fail(e, RKV_E_CANCELLED, "eval: interrupted");
    clear(s);
    rkv_made_ruler(s, k->task, k->key, size, k->depth);
    if (s->text.bad)
        return rkv_fail(e, RKV_E_MEM, "made samples: out of memory");
    RKV_TRY(rkv_eval_prompt_count(&n, s->text.data, k->task, o->raw, k->m, e));
    *over = (double)n + k->task->max_gen - k->length;
    return RKV_OK;
}

/* The largest sample that fits the length with template and answer. Long texts take time: tokens
 * are nearly linear in the size, so a line through the bracket's ends finds the place, one more
 * trial beyond it closes the bracket, and halving does the rest. */
static rkv_status make(rkv_made *s, const maker *k, rkv_error *e)
{
    int low = 1, high = 1, mid = 0, step = 0;
    double below, above;
    RKV_TRY(try_size(s, &below, k, low, e));
    if (below > 0.0)
        return rkv_fail(e, RKV_E_ARG, "%s: a length of %d tokens is too short for task and answer",
                        k->task->name, k->length);
    for (above = below; above <= 0.0 && high < 1 << 24;) {
        low = high, below = above;
        RKV_TRY(try_size(s, &above, k, high *= 2, e));
    }
    for (double over = 0.0; high - low > 1; step++) {
        const int line = low + (int)((high - low) * -below / (above - below));
        const int beyond = over > 0.0 ? mid - 1 - mid / 128 : mid + 1 + mid / 128;
        mid = step == 0 ? line : step == 1 ? beyond : low + (high - low) / 2;
        mid = mid <= low ? low + 1 : mid >= high ? high - 1 : mid;
        RKV_TRY(try_size(s, &over, k, mid, e));
        *(over > 0.0 ? &high : &low) = mid;
    }
    return try_size(s, &below, k, low, e);
}

/* ---- lines ---- */

static void write_line(rkv_text *t, const rkv_made *s, const maker *k, int number)
{
    rkv_text_printf(t, "{\"id\":\"%s-%d-%d\",\"task\":\"%s\",\"length\":%d,\"max_gen\":%d",
                    k->task->name, k->length, number, k->task->name, k->length, k->task->max_gen);
    if (s->depth >= 0.0) {
        rkv_text_printf(t, ",\"depth\":");
        rkv_text_number(t, s->depth);
    }
    rkv_text_printf(t, ",\"answers\":[");
    for (int i = 0; i < s->n_answer; i++) {
        if (i)
            rkv_text_add(t, ",", 1);
        rkv_text_json(t, s->answer[i], strlen(s->answer[i]));
    }
    rkv_text_printf(t, "],\"prompt\":");
    rkv_text_json(t, s->text.data, s->text.n);
    rkv_text_printf(t, "}\n");
}

static rkv_status add_sample(rkv_text *t, maker *k, int number, rkv_error *e)
{
    rkv_made s = {.depth = -1.0};
    k->key = rkv_noise_key(k->o->seed, (uint64_t)(k->task - rkv_task_at(0)), (uint64_t)number);
    const rkv_status status = make(&s, k, e);
    if (!status)
        write_line(t, &s, k, number);
    clear(&s);
    return status;
}

static rkv_status add_ruler(rkv_text *t, maker *k, rkv_error *e)
{
    for (int i = 0; (k->task = rkv_task_at(i)) != NULL; i++)
        for (int n = 0; n < k->o->samples && k->task->category == RKV_CATEGORY_RULER; n++)
            if (rkv_task_is_listed(k->task, k->o->tasks))
                RKV_TRY(add_sample(t, k, n, e));
    return RKV_OK;
}

static rkv_status add_needles(rkv_text *t, maker *k, rkv_error *e)
{
    const int n_depth = k->o->depths;
    k->task = rkv_task_find("passkey");
    for (int d = 0; d < n_depth && rkv_task_is_listed(k->task, k->o->tasks); d++)
        for (int n = 0; n < k->o->samples; n++) {
            k->depth = n_depth > 1 ? (double)d / (n_depth - 1) : 0.5;
            RKV_TRY(add_sample(t, k, d * k->o->samples + n, e));
        }
    return RKV_OK;
}

rkv_status rkv_eval_write(char **text, size_t *n, const rkv_model *m, const rkv_eval_options *o,
                          rkv_error *e)
{
    rkv_text t = {0};
    rkv_status s = rkv_tasks_check_list(o->tasks, e);
    for (int i = 0; !s && i < o->n_ruler; i++) {
        maker k = {.m = m, .o = o, .length = o->ruler[i]};
        s = add_ruler(&t, &k, e);
    }
    for (int i = 0; !s && i < o->n_needle; i++) {
        maker k = {.m = m, .o = o, .length = o->needle[i]};
        s = add_needles(&t, &k, e);
    }
    if (!s && !t.n)
        s = rkv_fail(e, RKV_E_ARG, "no made sample: name lengths, and tasks of RULER");
    if (s)
        rkv_text_free(&t);
    else if (!rkv_text_take(&t, text, n))
        s = rkv_fail(e, RKV_E_MEM, "made samples: out of memory");
    return s;
}
