/* The expressions of the pre-tokenizers, as facts, and the names that stand for them. */
#include "config.h"
#include "text/pretok_table.h"

#include <string.h>

/* Inside of a class. Written out because PCRE2's own \s takes U+180E, which Unicode does not count
 * as white space any more. */
#define WS "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" WS "]"
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define LINES SPACE "*[\\r\\n]+|"                       /* \s*[\r\n]+ */
#define GAPS SPACE "+(?![^" WS "])|" SPACE "+"          /* \s+(?!\S)|\s+ */
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKS " ?[^" WS "\\p{L}\\p{N}]+"
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"
#define HAN_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* Words of one case, as GPT-4o and its kin cut them: capitals first, or capitals only. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|" \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail "|"
#define GPT4O(digits) CASED("(?:" CONTRACTION ")?") digits "|" MARKS "[\\r\\n/]*|" LINES GAPS
#define DEEPSEEK3(marks_end) ASCII_PUNCTUATION "[A-Za-z]+|" \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" marks_end

static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" MARKS "|" GAPS;
static const char digit[] = "\\p{N}";
static const char llama3[] = CONTRACTION "|" WORD "|\\p{N}{1,3}|" MARKS "[\\r\\n]*|" LINES GAPS;
static const char qwen2[] = CONTRACTION "|" WORD "|\\p{N}|" MARKS "[\\r\\n]*|" LINES GAPS;
static const char three_digits[] = "\\p{N}{1,3}";
static const char bloom[] =
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+";

/* Cased letters as DeepSeek lists them. */
static const char deepseek_words[] = SPACE
    "?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"
    "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";

static const rkv_pretok_desc rows[] = {
    {"gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
     "jina-v1-en jina-v2-code roberta-bpe exaone4 mpt olmo jais trillion granite-docling", 0,
     {gpt2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", 0, {digit, gpt2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     RKV_PRETOK_WHOLE | RKV_PRETOK_BOS, {llama3}},
    {"dbrx smaug-bpe chatglm-bpe", 0, {llama3}},
    {"glm4 glm5", RKV_PRETOK_WHOLE, {llama3}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2", 0, {qwen2}},
    {"default", 0, {"[\\p{P}$+<=>^~|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"falcon", 0, {"[\\p{P}$+<=>^~|`]+", gpt2, "[0-9][0-9][0-9]"}},
    {"qwen35", 0, {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
     "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES GAPS}},
    {"ufakzeka", 0, {WORD "|\\p{N}|" MARKS "[\\r\\n]*|" LINES GAPS}},
    {"laguna", 0, {"[^\\n]+|\\n+", qwen2}},
    {"minicpm5", RKV_PRETOK_WHOLE,
     {three_digits, CONTRACTION "|" WORD "|\\p{N}+|" MARKS "[\\r\\n]*|" LINES GAPS}},
    {"bailingmoe bailingmoe2 llada-moe", 0,
     {CONTRACTION "|" WORD "|\\p{N}|" MARKS "[\\r\\n]*|" SPACE "*[\\r\\n]|" GAPS}},
    {"seed-coder", 0, {CONTRACTION "|" WORD "|\\p{N}| ?[^" WS "\\p{L}\\p{N}]+|" LINES GAPS}},
    {"exaone-moe", 0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|"
      MARKS "[\\r\\n/]?|" SPACE "*[\\r\\n]|" GAPS}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {GPT4O("\\p{N}{1,3}")}},
    {"granite-embed-multi-97m", RKV_PRETOK_WHOLE, {GPT4O("\\p{N}{1,3}")}},
    {"tekken", RKV_PRETOK_WHOLE | RKV_PRETOK_BOS,
     {CASED("") "\\p{N}|" MARKS "[\\r\\n/]*|" LINES GAPS}},
    {"youtu", RKV_PRETOK_WHOLE,
     {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"
      "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"
      "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" HAN_KANA,
      GPT4O("\\p{N}")}},
    {"deepseek-llm", 0,
     {"[\\r\\n]", deepseek_words,
      SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
      "\\x{3000}-\\x{3002}]+",
      "(?<!" SPACE ")" SPACE "++\\z",           /* \s+$, but linear on white space before a word */
      HAN_HANGUL, "\\p{N}+"}},
    {"deepseek-coder", 0, {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", HAN_HANGUL, digit}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0,
     {three_digits, HAN_KANA, DEEPSEEK3("[\\r\\n]*|" LINES GAPS)}},
    {"spark2_5", 0, {three_digits, HAN_KANA, DEEPSEEK3("|[\\r\\n]|" GAPS), digit}},
    {"poro-chat bloom gpt3-finnish", 0, {bloom}},
    {"viking", 0, {bloom, digit}},
    {"chameleon", RKV_PRETOK_BOS,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", digit,
      "[\\p{P}!-/:-@\\[-`{-~]", gpt2}},
};

static const struct {
    const char *expression;
    rkv_pretok_scan *scan;
} scanners[] = {
    {gpt2, rkv_pretok_scan_gpt2}, {digit, rkv_pretok_scan_digit},
    {llama3, rkv_pretok_scan_llama3}, {qwen2, rkv_pretok_scan_qwen2},
};

/* Whether the n bytes of name are one of the words of list. */
static int has_name(const char *list, const char *name, size_t n)
{
    while (*list) {
        const size_t len = strcspn(list, " ");
        if (len == n && !memcmp(list, name, n))
            return 1;
        list += len + (list[len] == ' ');
    }
    return 0;
}

const rkv_pretok_desc *rkv_pretok_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (has_name(rows[i].names, name, n))
            return &rows[i];
    return NULL;
}

rkv_pretok_scan *rkv_pretok_scanner(const char *expression)
{
    for (size_t i = 0; i < sizeof scanners / sizeof *scanners; i++)
        if (scanners[i].expression == expression)
            return scanners[i].scan;
    return NULL;
}
