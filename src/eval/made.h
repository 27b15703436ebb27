/* Made samples: the 13 task kinds of RULER and passkeys at depths, from this project's own words.
 * A pure function of seed, task, length and number: any machine makes the same text for one
 * tokenizer. */
#ifndef RKV_MADE_SAMPLES_H
#define RKV_MADE_SAMPLES_H

#include "base/json.h"
#include "eval/tasks.h"

enum { RKV_MADE_ANSWERS = 10 };

typedef struct rkv_made {
    rkv_text text;              /* the prompt */
    char answer[RKV_MADE_ANSWERS][48];
    int n_answer;
    double depth;               /* of the needle, 0 to 1; -1: several, or none */
} rkv_made;

/* Random numbers of one sample. */
typedef struct rkv_draw {
    uint64_t key, n;
} rkv_draw;
/* Uniform below n >= 1, the next one. */
int rkv_draw_below(rkv_draw *d, int n);

/* Words. */
void rkv_made_sentence(rkv_text *t, rkv_draw *d);
/* Key number i of a sample: three words, different for i < 32768. */
void rkv_made_key(char out[48], uint64_t base, int i);
void rkv_made_number(char out[48], rkv_draw *d);
void rkv_made_uuid(char out[48], rkv_draw *d);
/* A word that is none, of three syllables; different for i < 27000. */
void rkv_made_word(char out[48], uint64_t base, int i);
/* Person and city number i, different for i < 1024 and i < 240. */
void rkv_made_person(char out[48], uint64_t base, int i);
void rkv_made_city(char out[48], uint64_t base, int i);

/* The sample of `size` units of haystack (sentences, lines, words) by a task's maker; its length
 * grows with size. depth: of a passkey. */
typedef void rkv_maker(rkv_made *out, const rkv_task *t, uint64_t key, int size, double depth);
rkv_maker rkv_made_ruler;

/* Token count of a prompt as it is fed, its template included. In prompt.c. */
rkv_status rkv_eval_prompt_count(size_t *n, const char *text, const rkv_task *t, int raw,
                                 const rkv_model *m, rkv_error *e);

#endif
