/* Chat templates: recorded renderings of jinja2, own cases that jinja2 rendered (tests/chat),
 * limits, failing memory, truncated templates, the built-in families. */
#include "config.h"
#include "check.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/chat.h"

static rkv_status render(const char *text, const cJSON *vars, char **out, size_t *n, rkv_error *e)
{
    *out = NULL;
    return rkv_chat_render(text, strlen(text), vars, out, n, e);
}

/* A parsed file; NULL when it is not there. */
static cJSON *read_json(const char *path)
{
    char *text = NULL;
    size_t n;
    rkv_error e = {0};
    cJSON *json = NULL;
    if (rkv_json_read_file(&text, &n, path, 1 << 22, &e))
        return NULL;
    CHECK(!rkv_json_parse(&json, text, n, path, &e), "%s", e.text);
    rkv_mem_free(text);
    return json;
}

static const char *member(const cJSON *object, const char *name)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

/* ---- recorded cases -------------------------------------------------------------------------- */

static void check_error(const cJSON *c, const char *label, rkv_status s, const rkv_error *e)
{
    const cJSON *line = cJSON_GetObjectItemCaseSensitive(c, "line");
    const char *message = member(c, "message");
    char place[40];
    snprintf(place, sizeof place, "line %d: ", cJSON_IsNumber(line) ? line->valueint : 1);
    CHECK(s == RKV_E_FORMAT || s == RKV_E_UNSUPPORTED, "%s: status %d, %s", label, (int)s, e->text);
    CHECK(strstr(e->text, place), "%s: expected %s, got '%s'", label, place, e->text);
    CHECK(!message || strstr(e->text, message), "%s: expected '%s', got '%s'", label, message,
          e->text);
}

static void check_text(const char *label, const char *want, const char *got, size_t n,
                       const char *error)
{
    const int same = got && strlen(got) == n && !strcmp(got, want);
    CHECK(same, "%s\n  expected '%s'\n  got      '%s'", label, want, got ? got : error);
}

static void check_cases(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, RKV_SRCDIR "/tests/chat/%s.json", name);
    cJSON *file = read_json(path);
    const cJSON *c, *vars = cJSON_GetObjectItemCaseSensitive(file, "vars");
    CHECK(file && vars, "%s cannot be read", path);
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(file, "cases"))
    {
        const char *text = member(c, "template"), *want = member(c, "text");
        char *out;
        size_t n = 0;
        rkv_error e = {0};
        const rkv_status s = render(text, vars, &out, &n, &e);
        if (want)
            check_text(text, want, out, n, e.text);
        else
            check_error(c, text, s, &e);
        rkv_mem_free(out);
    }
    cJSON_Delete(file);
}

static void check_golden(const char *folder, const cJSON *c)
{
    char path[2048], label[256];
    char *text = NULL, *out;
    size_t n, n_out = 0;
    rkv_error e = {0};
    const char *want = member(c, "rendered"), *error = member(c, "error");
    snprintf(path, sizeof path, "%s/%s", folder, member(c, "template"));
    snprintf(label, sizeof label, "%s, %s", member(c, "template"), member(c, "case"));
    CHECK(!rkv_json_read_file(&text, &n, path, 1 << 20, &e), "%s", e.text);
    const rkv_status s = text ? rkv_chat_render(text, n, c, &out, &n_out, &e) : RKV_E_IO;
    if (want) {
        check_text(label, want, s ? NULL : out, n_out, e.text);
    } else {
        const char *message = error ? strstr(error, ": ") : NULL;
        CHECK(s == RKV_E_FORMAT && (!message || strstr(e.text, message + 2)),
              "%s: expected '%s', got '%s'", label, error, e.text);
    }
    if (!s)
        rkv_mem_free(out);
    rkv_mem_free(text);
}

/* The members of a recorded case besides the variables do no harm: no template reads them. */
static void check_goldens(void)
{
    const char *data = getenv("RKV_SHARED_DATA");
    char folder[1024], path[1100];
    snprintf(folder, sizeof folder, "%s/chat_templates",
             data ? data : RKV_SRCDIR "/../shared/data");
    snprintf(path, sizeof path, "%s/goldens.json", folder);
    cJSON *file = read_json(path);
    const cJSON *c;
    if (!file)
        SKIP(1, "no recorded renderings in %s", folder);
    cJSON_ArrayForEach(c, file)
        check_golden(folder, c);
    cJSON_Delete(file);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* text must fail because of a limit (or be a clean error when limit is ""), quickly and without
 * leak. */
static void check_limit(const char *text, const char *limit)
{
    const uint64_t before = rkv_mem_current();
    cJSON *vars = cJSON_Parse("{\"s\": \"abc\", \"l\": [1, 2, 3]}");
    char *out;
    size_t n = 0;
    rkv_error e = {0};
    const int64_t start = rkv_clock_ns();
    const rkv_status s = render(text, vars, &out, &n, &e);
    const double seconds = (double)(rkv_clock_ns() - start) * 1e-9;
    CHECK(s == RKV_E_ARG && strstr(e.text, limit), "%.60s: status %d, '%s', expected %s", text,
          (int)s, e.text, limit);
    CHECK(strstr(e.text, "line "), "%.60s: no line in '%s'", text, e.text);
    CHECK(seconds < 30.0, "%.60s took %.1f s", text, seconds);
    rkv_mem_free(out);
    CHECK(rkv_mem_current() == before, "%.60s: %llu bytes left", text,
          (unsigned long long)(rkv_mem_current() - before));
    cJSON_Delete(vars);
}

/* head, then n times middle, then tail, then n times end, then last. */
static void check_repeated(const char *head, int n, const char *middle, const char *tail,
                           const char *end, const char *last, const char *limit)
{
    rkv_text t = {0};
    rkv_text_add(&t, head, strlen(head));
    for (int i = 0; i < n; i++)
        rkv_text_add(&t, middle, strlen(middle));
    rkv_text_add(&t, tail, strlen(tail));
    for (int i = 0; i < n; i++)
        rkv_text_add(&t, end, strlen(end));
    rkv_text_add(&t, last, strlen(last));
    if (limit) {
        check_limit(t.data, limit);
    } else {
        char *out;
        size_t n_out;
        rkv_error e = {0};
        cJSON *vars = cJSON_CreateObject();
        CHECK(!render(t.data, vars, &out, &n_out, &e), "%.60s: %s", t.data, e.text);
        rkv_mem_free(out);
        cJSON_Delete(vars);
    }
    rkv_text_free(&t);
}

static void check_nesting(void)
{
    check_repeated("{{ ", 6000, "(", "1", ")", " }}", "MAX_NESTING");
    check_repeated("{{ ", 60, "(", "1", ")", " }}", NULL);
    check_repeated("{{ ", 6000, "[", "1", "]", " }}", "MAX_NESTING");
    check_repeated("{{ ", 6000, "{1: ", "1", "}", " }}", "MAX_NESTING");
    check_repeated("{{ ", 100000, "not ", "1", "", " }}", "MAX_NESTING");
    check_repeated("{{ ", 100000, "-", "1", "", " }}", "MAX_NESTING");
    check_repeated("{{ s", 100000, ".x", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ s", 100000, "[0]", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ s", 100000, "()", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ s", 100000, "|upper", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ ", 10000, "s if ", "1", "", " }}", "MAX_NESTING");
    check_repeated("{{ 1", 10000, " if 1 else 1", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ 1", 10000, " is eq 1", "", "", " }}", "MAX_NESTING");
    check_repeated("{{ 1", 20000, " + 1", "", "", " }}", NULL);
    check_repeated("{{ 1", 20000, " and 1", "", "", " }}", NULL);
    check_repeated("{{ 'a'", 20000, " ~ 'a'", "", "", " }}", NULL);
    check_repeated("{{ 1", 20000, " < 2 > 1", "", "", " }}", NULL);
    check_repeated("", 2000, "{% if 1 %}", "x", "{% endif %}", "", "MAX_NESTING");
    check_repeated("", 60, "{% if 1 %}", "x", "{% endif %}", "", NULL);
    check_repeated("", 2000, "{% for x in l %}", "x", "{% endfor %}", "", "MAX_NESTING");
    check_repeated("", 2000, "{% set x %}", "x", "{% endset %}", "", "MAX_NESTING");
    check_repeated("", 2000, "{% macro m() %}", "x", "{% endmacro %}", "", "MAX_NESTING");
    check_repeated("{% if 1 %}", 5000, "{% elif 1 %}", "x{% endif %}", "", "", NULL);
    check_repeated("{% set ", 6000, "(", "x", ")", " = 1 %}", "MAX_NESTING");
}

/* Small texts that ask for much, and the limit that stops them. */
static const struct {
    const char *text, *limit;
} bombs[] = {
    {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
     "MAX_STEPS"},
    {"{% for a in l %}{% set _ = l.append(a) %}{% endfor %}", "MAX_"},
    {"{{ range(100001) }}", "MAX_RANGE"},
    {"{{ range(1000000000)|list }}", "MAX_RANGE"},
    {"{{ range(9223372036854775807) }}", "MAX_RANGE"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "MAX_CALLS"},
    {"{% macro m() %}{{ caller }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}", "MAX_CALLS"},
    {"{% macro m() %}{{ caller() if caller }}{% endmacro %}{% macro n() %}{% call m() %}"
     "{{ n() }}{% endcall %}{% endmacro %}{{ n() }}", "MAX_"},
    {"{% for a in range(100000) %}{{ 'xxxxxxxxxxxxxxxx' * 1000 }}{% endfor %}", "MAX_"},
    {"{{ 'x' * 100000000 }}", "MAX_STRING"},
    {"{{ 'x' * 9223372036854775807 }}", "MAX_STRING"},
    {"{{ [0] * 100000000 }}", "MAX_ITEMS"},
    {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
     "{% endfor %}", "MAX_STRING"},
    {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
     "{% endfor %}", "MAX_STRING"},
    {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
     "{% endfor %}", "MAX_ITEMS"},
    {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}"
     "{% set ns.s = ns.s|replace('x', 'xxxxxxxx') %}{% endfor %}", "MAX_"},
    {"{% set x = 'x' * 30000000 %}{% for i in l %}{{ x }}{% endfor %}", "MAX_OUTPUT"},
    {"{% for i in range(100) %}{% set x = 'x' * 60000000 %}{% endfor %}", "MAX_MEMORY"},
    {"{{ s.center(1000000000) }}", "MAX_OUTPUT"},
    {"{{ s.ljust(9223372036854775807) }}", "MAX_OUTPUT"},
    {"{{ '%1000000000d' % 1 }}", "MAX_OUTPUT"},
    {"{{ '%*d' % (1000000000000, 1) }}", "MAX_OUTPUT"},
    {"{{ '{:1000000000}'.format(1) }}", "MAX_OUTPUT"},
    {"{{ s|indent(1000000000) }}", "MAX_STRING"},
    {"{{ l|tojson(indent=1000000000) }}", "MAX_STRING"},
    {"{{ '\\t'.expandtabs(9223372036854775807) }}", "MAX_OUTPUT"},
    {"{{ l|slice(1000000000)|list }}", "MAX_"},
    {"{{ l|batch(1000000000, 0)|list }}", "MAX_"},
    {"{{ ('a' * 1000000).rfind('a' * 500000 ~ 'b') }}", "MAX_STEPS"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
     "{% endfor %}{{ ns.x }}", "MAX_NESTING"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
     "{% endfor %}{{ ns.x|tojson }}", "MAX_NESTING"},
    {"{% set ns = namespace(x=[], y=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
     "{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}", "MAX_NESTING"},
    {"{% set ns = namespace(x=l) %}{% for i in range(1000) %}{% set ns.x = ns.x|map('string') %}"
     "{% endfor %}{{ ns.x|list }}", "MAX_NESTING"},
    {"{% set _ = l.append(l) %}{{ l }}", "MAX_NESTING"},
    {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "MAX_NESTING"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ 99999999999999999999 }}", "64 bits"},
    {"{{ 10 ** 30 }}", "64 bits"},
    {"{{ 1e300|int }}", "64 bits"},
    {"{% macro a(n) %}{% if 1 %}{% if 1 %}{% for x in [1] %}{{ (((a(n)))) }}{% endfor %}"
     "{% endif %}{% endif %}{% endmacro %}{{ a(1) }}", "MAX_"},
};

static void check_work(void)
{
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++)
        check_limit(bombs[i].text, bombs[i].limit);
    check_repeated("{{ 1 }}", 140000, "{{ s }}  ", "", "", "", "MAX_TEMPLATE");
}

/* Data is nested no deeper either. */
static void check_deep_data(void)
{
    cJSON *vars = cJSON_CreateObject(), *at = vars;
    for (int i = 0; i < 200; i++)
        at = cJSON_AddObjectToObject(at, "x");
    char *out;
    size_t n;
    rkv_error e = {0};
    CHECK(render("a", vars, &out, &n, &e) == RKV_E_ARG && strstr(e.text, "MAX_NESTING"), "%s",
          e.text);
    cJSON_Delete(vars);
}

/* ---- failing memory, truncated templates ----------------------------------------------------- */

static const char broad[] =
    "{% set ns = namespace(a=1) %}{% macro m(x, y='q') %}{{ x|upper }}{{ varargs }}{{ kwargs }}{{ "
    "caller(1) if caller }}"
    "{% endmacro %}{% for k, v in d.items() if v %}{{ loop.index }}{{ k ~ v }}{% set ns.a = ns.a + "
    "1 %}{% else %}e"
    "{% endfor %}{% call(z) m(1, 2, 3, w=4) %}{{ z }}{% endcall %}{{ l|map('string')|join(',') "
    "}}{{ l|sort|tojson(indent=2) }}"
    "{{ 'a,b'.split(',') }}{{ '%s-%d' % ('x', 3) }}{{ '{:>5}'.format('y') }}{{ l[::-1] }}{{ "
    "'straße'.upper()[1:3] }}"
    "{% filter trim %} {{ s }} {% endfilter %}{% set t | replace('a', 'b') %}aaa{% endset %}{{ t "
    "}}{% with q = 1 %}{{ q }}"
    "{% endwith %}{{ objs|selectattr('a')|list|length }}{{ objs|groupby('a') }}{{ d|dictsort }}{{ "
    "s|indent }}{{ l|batch(2)|list }}"
    "{{ (s|e) ~ 'x' }}{{ dict(a=1, **d) }}{{ strftime_now('%Y')|length }}{{ range(9)[::2]|list "
    "}}{{ s|title }}{{ nope|d('z') }}"
    "{% generation %}{{ s }}{% endgeneration %}{% raw %}{{ }}{% endraw %}{{ l|unique|list }}{{ [1, "
    "[2, {'a': none}]] }}"
    "{{ 'x' * 200 }}{{ cycler(1, 2).next() }}{{ joiner()() }}{{ s.center(9, '*') }}{{ l|sum }}{{ "
    "l|min }}{{ 2.5|round }}";

static cJSON *broad_vars(void)
{
    return cJSON_Parse(
        "{\"d\": {\"k\": 1, \"z\": \"v\"}, \"l\": [3, 1, 2], \"s\": \"some <text>\", "
        "\"objs\": [{\"a\": 1}, {\"a\": 2}]}");
}

static void check_memory(void)
{
    cJSON *vars = broad_vars();
    const uint64_t before = rkv_mem_current();
    rkv_status s = RKV_E_MEM;
    long k = 0;
    char *out = NULL;
    size_t n = 0;
    while (s == RKV_E_MEM && k < 10000) {
        rkv_error e = {0};
        rkv_mem_fail_after(++k);
        s = render(broad, vars, &out, &n, &e);
        rkv_mem_fail_after(0);
        CHECK(!s || (s == RKV_E_MEM && strstr(e.text, "memory")), "allocation %ld: %s", k, e.text);
        CHECK(!s || rkv_mem_current() == before, "allocation %ld: %llu bytes left", k,
              (unsigned long long)(rkv_mem_current() - before));
    }
    CHECK(!s && k > 3, "%ld allocations", k);
    rkv_mem_free(out);
    CHECK(rkv_mem_current() == before, "bytes left");
    cJSON_Delete(vars);
}

/* Every beginning of a template gives text or an error, and nothing worse; the exact size makes a
 * sanitizer see a read past the end. */
static void check_truncated(void)
{
    cJSON *vars = broad_vars();
    const uint64_t before = rkv_mem_current();
    int failed = 0;
    for (size_t n = 0; n < sizeof broad; n++) {
        char *text = malloc(n ? n : 1), *out = NULL;
        size_t n_out;
        rkv_error e = {0};
        memcpy(text, broad, n);
        const rkv_status s = rkv_chat_render(text, n, vars, &out, &n_out, &e);
        CHECK(!s || s == RKV_E_FORMAT || s == RKV_E_UNSUPPORTED, "first %zu bytes: status %d, %s",
              n, (int)s, e.text);
        CHECK(!s || strstr(e.text, "chat template line 1: "), "first %zu bytes: '%s'", n, e.text);
        failed += s != RKV_OK;
        rkv_mem_free(out);
        free(text);
    }
    CHECK(failed > 500 && failed < (int)sizeof broad, "%d beginnings failed", failed);
    CHECK(rkv_mem_current() == before, "bytes left");
    cJSON_Delete(vars);
}

/* ---- the interface --------------------------------------------------------------------------- */

static void check_status(const char *text, rkv_status want, const char *part)
{
    cJSON *vars = cJSON_CreateObject();
    char *out;
    size_t n;
    rkv_error e = {0};
    const rkv_status s = render(text, vars, &out, &n, &e);
    CHECK(s == want && strstr(e.text, part), "%s: status %d, '%s'", text, (int)s, e.text);
    CHECK(s == render(text, vars, &out, &n, NULL), "%s: without a place for the error", text);
    cJSON_Delete(vars);
}

static void check_interface(void)
{
    check_status("\n{% include 'x' %}", RKV_E_UNSUPPORTED, "line 2: the tag 'include'");
    check_status("{% for x in y recursive %}{% endfor %}", RKV_E_UNSUPPORTED, "recursive");
    check_status("{{ 1|nofilter }}", RKV_E_UNSUPPORTED, "no filter named 'nofilter'");
    check_status("{{ 1|pprint }}", RKV_E_UNSUPPORTED, "filter 'pprint'");
    check_status("{{ 1 is notest }}", RKV_E_UNSUPPORTED, "no test named 'notest'");
    check_status("{{ 'x'.encode() }}", RKV_E_UNSUPPORTED, "method 'encode'");
    check_status("{{ lipsum() }}", RKV_E_UNSUPPORTED, "'lipsum'");
    check_status("{{ '\\N{DASH}' }}", RKV_E_UNSUPPORTED, "\\N");
    check_status("{{ '\\ud800' }}", RKV_E_UNSUPPORTED, "surrogate");
    check_status("{{ raise_exception('a' * 1000) }}", RKV_E_FORMAT, "line 1: aaaa");
    char *out = NULL;
    size_t n = 9;
    rkv_error e = {0};
    cJSON *list = cJSON_CreateArray(), *vars = cJSON_CreateObject();
    CHECK(render("", list, &out, &n, &e) == RKV_E_FORMAT && strstr(e.text, "object"), "%s", e.text);
    CHECK(render("", NULL, &out, &n, &e) == RKV_E_FORMAT, "no variables");
    CHECK(!rkv_chat_render("", 0, vars, &out, &n, &e) && out && n == 0 && !*out, "empty template");
    rkv_mem_free(out);
    /* Bytes that are not UTF-8 pass through; a 0 byte counts. */
    cJSON_AddStringToObject(vars, "x", "a\xff\xc3");
    CHECK(!render("\xfe{{ x }}{{ x|length }}{{ x[1] ~ x[::-1] }}{{ '\\0' }}", vars, &out, &n, &e),
          "%s", e.text);
    CHECK(n == 10 && !memcmp(out, "\xfe" "a\xff\xc3" "3\xff\xc3\xff" "a\0", 11), "%zu bytes", n);
    rkv_mem_free(out);
    char want[32];
    const time_t now = time(NULL);
    strftime(want, sizeof want, "%Y-%b-%d", localtime(&now));
    CHECK(!render("{{ strftime_now('%Y-%b-%d') }}{{ strftime_now('') }}", vars, &out, &n, &e), "%s",
          e.text);
    CHECK(!strcmp(out, want), "%s is not %s", out, want);       /* but at midnight */
    rkv_mem_free(out);
    cJSON_Delete(list);
    cJSON_Delete(vars);
}

static void check_builtin(void)
{
    static const struct {
        const char *name, *want;
    } row[] = {
        {"chatml", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi "
                   "<|im_end|>\n<|im_start|>assistant\nYo"
                   "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"},
        {"llama2", "<s>[INST] <<SYS>>\nBe.\n<</SYS>>\n\nHi [/INST] Yo </s><s>[INST] Bye [/INST]"},
        {"llama3",
         "<s><|start_header_id|>system<|end_header_id|>\n\nBe.<|eot_id|><|start_header_id|>user"
         "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nYo<|"
         "eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant"
         "<|end_header_id|>\n\n"},
        {"mistral", "<s>[INST] Be.\n\nHi  [/INST] Yo</s>[INST] Bye [/INST]"},
        {"gemma",
         "<s><start_of_turn>user\nBe.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
         "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
        {"phi3", "<|system|>\nBe.<|end|>\n<|user|>\nHi "
                 "<|end|>\n<|assistant|>\nYo<|end|>\n<|user|>\nBye<|end|>\n"
                 "<|assistant|>\n"},
        {"zephyr",
         "<|system|>\nBe.</s>\n<|user|>\nHi </s>\n<|assistant|>\nYo</s>\n<|user|>\nBye</s>\n"
         "<|assistant|>\n"}};
    cJSON *vars = cJSON_Parse(
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be.\"}, {\"role\": \"user\", "
        "\"content\": \"Hi \"}, "
        "{\"role\": \"assistant\", \"content\": \"Yo\"}, {\"role\": \"user\", \"content\": "
        "\"Bye\"}], "
        "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true}");
    char list[256] = "";
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const char *text = rkv_chat_builtin(row[i].name);
        char *out = NULL;
        size_t n = 0;
        rkv_error e = {0};
        CHECK(text && !render(text, vars, &out, &n, &e), "%s: %s", row[i].name, e.text);
        check_text(row[i].name, row[i].want, out, n, e.text);
        rkv_mem_free(out);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 row[i].name);
    }
    CHECK(!strcmp(list, rkv_chat_builtin_list()), "%s", rkv_chat_builtin_list());
    CHECK(!rkv_chat_builtin("none") && !rkv_chat_builtin(""), "unknown families");
    cJSON_Delete(vars);
}

int main(void)
{
    static const char *const topics[] = {"syntax",  "control", "scope",   "whitespace",
                                         "filters", "tests",   "methods", "errors"};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        check_cases(topics[i]);
    check_goldens();
    check_nesting();
    check_work();
    check_deep_data();
    check_memory();
    check_truncated();
    check_interface();
    check_builtin();
    return check_end("chat");
}
