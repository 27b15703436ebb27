#!/usr/bin/env python3
"""Writes the expectations of check_chat (tests/chat/*.json) anew: the templates below, rendered by
jinja2 as transformers sets it up (reference.py). Needs jinja2 3.1.6 (pip install jinja2==3.1.6)."""
import json
import os
import sys
import traceback
import warnings

import jinja2

sys.dont_write_bytecode = True
import reference  # noqa: E402

warnings.simplefilter("ignore")

VARS = {
    "i": 7, "j": -3, "f": 2.5, "big": 123456789012, "yes": True, "no": False, "nil": None, "s": "Hello World",
    "u": "Straße é中😀 ǅ ﬁ ΑΣ", "w": " \t pad\n", "m": "one\ntwo\r\n\nthree", "h": "<b> & \"q\" 'a'", "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"], "ll": [[1, "x"], [2, "y"]], "d": {"b": 1, "a": "two", "items": [1], "c": {"x": {"y": "deep"}}},
    "objs": [{"k": "x", "v": 3, "r": "user"}, {"k": "Y", "v": 1}, {"k": "z", "v": 2, "r": "user"}],
    "messages": [{"role": "system", "content": "S "}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
}


def each(head, args, tail=""):
    return [head + a + tail for a in args]


SYNTAX = [
    "", "plain", "{{ s }}", "{{s}}{{ i }}", "{{ 'a' 'b' \"c\" }}", "{{ \"it's\" }} {{ 'say \"x\"' }}",
    r"{{ 'a\nb\tc\\d\'e\x41\u00e9\U0001F600\101\q\é' }}", "{{ 'a\\\nb' }}", "{{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 00 }}",
    "{{ 1.5 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_0.2_5 }} {{ 1e22 }} {{ 123456789.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }}",
    "{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}", "{{ [] }} {{ [1, 'a', none, 2.0,] }} {{ () }} {{ (1,) }} {{ 1, 2 }} {{ (1, (2, 3)) }}",
    "{{ {} }} {{ {'a': 1, 2: 'b', true: none,} }} {{ {1: 'a', true: 'b', 1.0: 'c'} }}", "{{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 3 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 1e308 * 10 }} {{ true + true }} {{ -true }} {{ +i }} {{ - - i }}",
    "{{ 'a' ~ 1 ~ none ~ [1] ~ 'b' * 2 }} {{ 1 ~ 2 + 3 ~ 4 }} {{ 'a' + 'b' * 2 + 'c' }}", "{{ [1] + [2] }} {{ (1,) + (2,) }} {{ [0] * 3 }} {{ 2 * 'ab' }} {{ 'ab' * -1 }}",
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) >= (1,) }} {{ 'a' != 'b' }} {{ [1] == (1,) }}",
    "{{ 1 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'a' in d }} {{ 3 in range(5) }} {{ not 1 in l }} {{ 'x' in nope }} {{ ('b', 1) in d.items() }} {{ 'two' in d.values() }}",
    "{{ yes and no }} {{ yes or no }} {{ 0 or 'x' }} {{ '' and 1 }} {{ not yes }} {{ not not 1 }} {{ no or nil or '' or 5 }}",
    "{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }} {{ 1 if no else 2 if no else 3 }} {{ ('a' if no) is defined }}",
    "{{ d.a }} {{ d['a'] }} {{ d.c.x.y }} {{ d['c'].x['y'] }} {{ l.0 }} {{ ll.1.0 }} {{ l[-1] }} {{ s[0] }} {{ u[7] }} {{ objs[0].k }} {{ d.items()|list|length }} {{ d['items'] }}",
    "{{ d.zz }}|{{ nope }}|{{ l[10] }}|{{ s.zz }}|{{ nil.x }}|{{ i.x }}|{{ nil['x'] }}|{{ l['a'] }}|{{ s[99] }}|{{ d[1, 2] }}|{{ d[[1]] }}",
    "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ s[2:5] }} {{ s[::-2] }} {{ u[5:9] }} {{ u[::-1] }} {{ l[5:] }} {{ l[-2:] }} {{ l[none:2] }} {{ (1, 2, 3)[1:] }} {{ range(9)[2:8:2] }} {{ s[i:] }} {{ l[:] }} {{ s[-3:-1] }} {{ l[2:0:-1] }}",
    "{{ range(3) }} {{ range(1, 9, 3) }} {{ range(3)|list }} {{ range(3, 0, -1)|list }} {{ range(0)|list }} {{ range(5)[1] }} {{ range(5)[::-1]|list }}",
    "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([['p', 1], ('q', 2)]) }} {{ dict() }}", "{{ i is number }}{# gone #}{{ s }}", "{{ -1|abs }} {{ (-1)|abs }} {{ 'a'|upper ~ 'b'|upper }} {{ not no|default(1) }}",
    "{{ [i, j][0] }} {{ {'a': [1, {'b': 2}]}.a[1].b }} {{ 'abc'.upper()[1] }} {{ ('a', 'b')[1] }}", "{% print i, s %}{% print 'x' %}", "{{ (1, 2,)|length }} {{ (((((1))))) }}",
    "{% raw %}{{ x }} {% if %} {# c #}{% endraw %}", "a{# {{ x }} {% if %} #}b", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}}.a.b }}{{ {}}}", "{{ \u00e9t\u00e9 }}{% set \u00e9t\u00e9 = 1 %}{{ \u00e9t\u00e9 }}",
    "{{ u }} {{ [u] }} {{ ['\\x07\\u200b\\u00ad\\U000e0001'] }} {{ ['it\\'s', 'a\"b', 'a\\'b\"c'] }}", "{{ [nope, nil, yes, 1.0, -0.0, 1e-5, 1e100] }}", "{{ 1 }}{{ 1.0 }}{{ 10 / 5 }}{{ 2.50 }}",
    "{{ 1.e5 }}|{{ 1.5.x }}", "{{ -5 % 3 }} {{ 5 % -3 }} {{ -5 // 3 }} {{ 5.5 % -2 }} {{ -0.0 }} {{ 0.1 * 3 }} {{ 1 / 3 }} {{ 100 * 1.1 }} {{ 9007199254740993 }} {{ 9223372036854775807 }}",
]

CONTROL = [
    "{% if i > 3 %}a{% endif %}", "{% if no %}a{% elif i == 7 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if nope %}a{% else %}b{% endif %}", "{% if l and s and d %}a{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in l %}a{% else %}b{% endfor %}", "{% for x in nope %}a{% else %}b{% endfor %}", "{% for c in 'héy' %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}none{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}|{{ loop.previtem }}|{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop }}{% endfor %}", "{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}", "{% for x in l %}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in range(9) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% break %}{% else %}else after break{% endfor %}", "{% for x in l %}{% if loop.last %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}", "{% for x in l %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in l %}{% set t %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endset %}{{ t }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ y }}{{ x }}", "{% set x, y = ll[0] %}{{ y }}{{ x }}", "{% set (x, y), z = [(1, 2), 3] %}{{ x }}{{ y }}{{ z }}", "{% set x %}a{{ i }}b{% endset %}[{{ x }}]", "{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}", "{% set x = (1 == 1) %}{{ x }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns }}", "{% set ns = namespace() %}{% for x in l %}{% set ns.sum = (ns.sum or 0) + x %}{% endfor %}{{ ns.sum }}", "{% set ns = namespace({'p': 1}, q=2) %}{{ ns.p }}{{ ns['q'] }}{% set ns.p, ns.q = 5, 6 %}{{ ns.p }}{{ ns.q }}", "{% set ns = namespace() %}{% set ns.t %}x{{ i }}{% endset %}{{ ns.t }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=0) }}{{ m() }}{{ m(*l) }}{{ m(**{'a': 9}) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m() }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in {{ i }}{% endcall %}",
    "{% macro m(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, n) m(ls) %}{{ n }}{{ v }} {% endcall %}", "{% macro m() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro m(a) %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}{% endmacro %}{{ m(1) }}{{ m }}",
    "{% macro m(a='x') -%} {{ a }} {%- endmacro %}[{{ m() }}][{{ m('y')|upper }}]{% set t = m('z') ~ '!' %}{{ t }}", "{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('l', 'L')|trim %} {{ s }} {% endfilter %}",
    "{% generation %}{{ s }}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos }}{% endgeneration %}{% endif %}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{% if true: %}a{% endif %}",
    "{% set _ = l.append(9) %}{{ l }}{% set x = l.pop(0) %}{{ x }}{{ l }}{% set _ = d.update({'z': 1}) %}{{ d.z }}", "{% for x in l %}{{ x }}{% if x == 2 and l|length < 6 %}{% set _ = l.append(2) %}{% endif %}{% endfor %}",
]

# What jinja2 decides about names when it compiles.
SCOPE = [
    "{% set x = 1 %}{% for y in l %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}", "{% for y in l %}{% if loop.first %}{% set x = 'f' %}{% endif %}[{{ x }}]{% endfor %}", "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% for x in l %}{% endfor %}[{{ x }}]", "{% for i in l %}{{ i }}{% endfor %}{{ i }}",
    "{% for a in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "{{ s }}{% for a in l %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}", "{% for a in l %}{{ s }}{% endfor %}{% if yes %}{% set s = 1 %}{% endif %}{{ s }}", "{% macro m() %}[{{ s }}]{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}", "{% macro m() %}[{{ x }}]{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(s) %}{{ s }}{% endmacro %}{{ m() }}{{ m(1) }}{{ s }}", "{% set x %}{% set s = 'in' %}{{ s }}{% endset %}{{ x }}{{ s }}", "{% filter upper %}{% set s = 'in' %}{{ s }}{% endfilter %}{{ s }}",
    "{% with s = s ~ '!' %}{{ s }}{% set s = 2 %}{{ s }}{% endwith %}{{ s }}", "{% macro m2(q) %}{{ caller(q) }}{% endmacro %}{% call(s) m2(1) %}{{ s }}{% endcall %}{{ s }}", "{% for x in l %}{% set z = x %}{% endfor %}[{{ z }}]", "{% set z = 0 %}{% for x in l %}{% if z %}{{ z }}{% endif %}{% set z = x %}{% endfor %}{{ z }}", "{% for loop_ in l %}{{ loop.index }}{% endfor %}",
    "{% for x in l %}{% for y in ls if loop %}{{ y }}{% endfor %}{% endfor %}", "{% for x in [1, 2] %}{{ loop.index }}{% for y in [1] %}{{ loop.length }}{% else %}{% endfor %}{% endfor %}", "{% set dict = 5 %}{{ dict }}", "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}", "{% if no %}{% set i = 1 %}{% else %}{{ i }}{% set i = 2 %}{% endif %}{{ i }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% if yes %}{{ s|nofilter if no else 'ok' }}{% endif %}", "{{ 'x' if yes else s|nofilter }}", "{% if no %}{{ s is notest }}{% endif %}ok",
]

WHITESPACE = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "  {% if yes %}\n  b\n  {% endif %}\n", "a  {% if yes %}  b  {% endif %}  c", "a  {%- if yes %}  b  {%- endif %}  c", "a {% if yes -%}\n\n b {% endif -%} c", "a\n  {%+ if yes %}\n b{% endif +%}\nc", "{{ i }}\n{{ i }}\n", "{{ i -}}\n  {{- i }}\n\n", "  {{ i }}  ", " {{- i -}} ",
    "a\n  {# c #}\nb", "a\n  {#- c -#}\n b", "a {#+ c +#}\nb", "{# c #}\n\nb", "x\n\n", "x\n", "\n", "\n\n", "a\r\nb\rc\n", "{% raw %}\n a\n{% endraw %}\nb", "  {% raw %} a {% endraw %}  \nb", "x {%- raw -%}  a  {%- endraw -%}  y", "x\n  {% raw %}\n  {{ a }}\n  {% endraw %}\ny", "\t{% if yes %}\n\ta{% endif %}\n\t{{ i }}",
    "{% if yes %}\r\na\r\n{% endif %}\r\n", "{%if yes%}a{%endif%}", "{%\nif\nyes\n%}a{%\nendif\n%}", "{{\n i\n}}", "{% set x = 1 %}\n\n  {% set y = 2 %}  {{ x }}", "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n", "a\u00a0{%- if yes %}b{% endif %}\u2003{{- i }}", "\u00a0 {% if yes %}b{% endif %}", "{% if yes %}  \n x{% endif %}", "a{% if yes %}\n{% endif %}\n\nb", "{#\nmany\nlines\n#}\nx",
]

FILTERS = (
    each("{{ ", ["w|trim", "'xxaxx'|trim('x')", "i|trim", "'xyaxy'|trim(chars='xy')", "s|upper", "u|upper", "s|lower", "u|lower", "'ΟΔΟΣ ΣΑΣ'|lower", "s|capitalize", "'ǆabc ÉT'|capitalize", "'foo bar-baz (qux) it\\'s O\\'NEIL'|title", "u|title", "nil|upper", "nope|upper"], " }}")
    + each("{{ ", ["d|tojson", "l|tojson(indent=2)", "d|tojson(indent=4)", "[]|tojson(indent=2)", "{'a': [], 'b': {}}|tojson(indent=1)", "u|tojson", "u|tojson(ensure_ascii=True)", "h|tojson", "'\\x00\\x1f\\x7f\\\\/\\n\\t\\r\\f\\b'|tojson", "[1.0, 1e22, true, none]|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson", "(1, 2)|tojson", "d|tojson(sort_keys=true)",
                   "d|tojson(separators=(',', ':'))", "l|tojson(indent='--')", "l|tojson(indent=0)", "d|tojson(true, 2)", "{'b': [{'c': 1}]}|tojson(indent=2, separators=(',', ' : '))"], " }}")
    + each("{{ ", ["s|length", "u|length", "l|length", "d|length", "nope|length", "range(4)|count", "d.items()|length", "nope|default('x')", "nope|d", "''|default('x')", "''|default('x', true)", "nil|default('x', boolean=True)", "d.x|default(1)", "s|default(1)"], " }}")
    + each("{{ ", ["l|join", "l|join(', ')", "ls|join('-')", "objs|join(', ', attribute='k')", "'abc'|join('.')", "d|join(',')", "[1, none, nope, 2.5]|join('|')", "[]|join('x')", "l|join(d='+')", "ls|map('upper')|join", "ls|map('replace', 'a', 'Q')|list", "objs|map(attribute='k')|list", "objs|map(attribute='r')|list", "objs|map(attribute='r', default='?')|list", "ll|map(attribute=1)|list", "ll|map('first')|list", "ll|map('join', ':')|list", "[{'a': {'b': 1}}]|map(attribute='a.b')|list", "nope|map('upper')|list"], " }}")
    + each("{{ ", ["objs|selectattr('r')|list|length", "objs|selectattr('r', 'defined')|map(attribute='k')|join", "objs|selectattr('v', 'gt', 1)|map(attribute='k')|join", "objs|rejectattr('r', 'equalto', 'user')|map(attribute='k')|list", "objs|rejectattr('r')|map(attribute='k')|list", "l|select('odd')|list", "l|select|list", "[0, 1, '', 'a']|reject|list", "l|reject('equalto', 1)|list", "l|select('in', [1, 2])|list", "l|select('>', 1)|list", "objs|selectattr('k', 'in', ['x', 'z'])|map(attribute='v')|sum"], " }}")
    + each("{{ ", ["l|first", "l|last", "s|first", "s|last", "[]|first", "[]|last", "d|first", "d|last", "range(5)|last", "d.keys()|last", "l|list", "s|list", "d|list", "d.items()|list", "nope|list", "l|reverse|list", "s|reverse", "u|reverse", "range(3)|reverse|list", "l|sort", "ls|sort", "ls|sort(case_sensitive=true)", "l|sort(reverse=true)", "l|sort(true)", "objs|sort(attribute='v')|map(attribute='k')|join", "objs|sort(attribute='k')|map(attribute='k')|join", "[{'a': 2, 'b': 1}, {'a': 1, 'b': 9}, {'a': 1, 'b': 3}]|sort(attribute='a,b')",
                   "['b', 'B', 'a', 'b']|unique|list", "['b', 'B', 'a', 'b']|unique(case_sensitive=true)|list", "objs|unique(attribute='r')|map(attribute='k')|list", "[1, 1.0, true, 2]|unique|list", "[none, none]|sort", "[2, 1.5, true]|sort"], " }}")
    + each("{{ ", ["l|min", "l|max", "ls|min", "ls|max", "[]|min", "objs|max(attribute='v')", "objs|min(attribute='k')", "['b', 'B']|max", "['b', 'B']|max(case_sensitive=true)", "l|sum", "objs|sum(attribute='v')", "[[1], [2]]|sum(start=[])", "[0.1, 0.2]|sum", "[]|sum", "l|sum(start=10)", "d|dictsort", "d|dictsort(reverse=true)", "{'b': 1, 'A': 2, 'a': 0}|dictsort", "{'b': 1, 'A': 2}|dictsort(true)", "{'b': 1, 'A': 2}|dictsort(by='value')", "{'b': 2, 'A': 'x'}|dictsort(false, 'key')", "d|items|list", "nope|items|list", "{'x': 1}|items|first"], " }}")
    + each("{{ ", ["'42'|int", "'-7'|int", "'3.7'|int", "3.9|int", "-3.9|int", "'x'|int", "'x'|int(5)", "'0x1F'|int(base=16)", "'ff'|int(0, 16)", "'0b11'|int(0, 0)", "' 4_2 '|int", "yes|int", "nil|int", "''|int", "'1e3'|int", "'2.5'|float", "'x'|float", "'x'|float(1.5)", "3|float", "'1e-3'|float", "' inf'|float", "'1_0.5'|float", "nil|float(7)", "i|string", "nil|string", "l|string + '!'", "1.0|string"], " }}")
    + each("{{ ", ["2.5|round", "3.5|round", "2.675|round(2)", "-2.5|round", "1234.567|round(-2)", "1250|round(-2)", "1350|round(-2)", "2.1|round(0, 'ceil')", "2.9|round(method='floor')", "2.123|round(2, 'ceil')", "-2.129|round(2, 'floor')", "7|round", "7|round(1)", "1e22|round", "0.5|round|int", "(-3)|abs", "j|abs", "-2.5|abs", "yes|abs"], " }}")
    + each("{{ ", ["'a-b-c'|replace('-', '+')", "'aaa'|replace('a', 'b', 2)", "123|replace(2, 'x')", "'abc'|replace('', '.')", "m|indent", "m|indent(2)", "m|indent(2, true)", "m|indent(2, blank=true)", "m|indent('> ', first=true)", "'a\\n'|indent(2)", "'x'|center(5)|tojson", "'ab'|center(5)|tojson", "s|truncate(8)", "s|truncate(8, true)", "s|truncate(5, false, '..', 0)", "s|truncate(255)", "'a b_c d-e é'|wordcount", "'a b/ü?'|urlencode", "{'a b': 1, 'c': '&/'}|urlencode", "'%s-%d' | format('a', 3)", "'%(x)s'|format(x=1)"], " }}")
    + each("{{ ", ["h|e", "h|escape", "h|safe", "h|safe|e", "h|e|e", "h|e|forceescape", "('<a>'|safe) + '<b>'", "'<b>' + ('<a>'|safe)", "('<a>'|safe) ~ '<b>'", "['<a>'|safe]", "('<a>'|safe) * 2", "('<a>'|safe)|upper + '<'", "('%s'|safe) % '<'", "('<'|safe).join(['<', '>'])", "(('<'|safe)|string) + '<'", "('a<'|safe).replace('a', '<')", "('<i>'|e)|length", "h|safe is escaped", "[1, 2, 3, 4, 5]|batch(2)|list", "[1, 2, 3]|batch(2, 'x')|list", "[1, 2, 3, 4, 5]|slice(3)|list", "[1, 2, 3, 4]|slice(3, 'x')|list",
                   "objs|groupby('v')|list|length", "objs|selectattr('r')|groupby('r')", "[{'c': 'B'}, {'c': 'a'}, {'c': 'b'}]|groupby('c')", "objs|groupby('r', default='none')|map(attribute='grouper')|list", "(objs|groupby('v'))[0].list", "d|attr('zz') is defined", "s|attr('upper') is callable"], " }}")
)

TESTS = (
    each("{{ [", [", ".join(f"{v} is {t}" for v in ["i", "f", "s", "yes", "nil", "l", "d", "nope", "range(2)", "(1,)", "d.items()", "namespace()", "s.upper", "range"]) for t in
                  ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false", "callable", "escaped"]], "] }}")
    + each("{{ ", ["i is odd", "i is even", "i is not odd", "i is divisibleby 7", "i is divisibleby(2)", "i is eq 7", "i is equalto(7)", "i is ne 7", "i is gt 3", "i is greaterthan(9)", "i is lt 9", "i is lessthan 3", "i is ge 7", "i is le 7", "i is in [7]", "i is not in [7]", "'l' is in s", "s is lower", "'abc' is lower", "'ABC' is upper", "'É' is upper", "nil is sameas none", "yes is sameas true", "1 is sameas true", "'upper' is filter", "'nope' is filter", "'odd' is test", "nope is not defined and yes", "i is number and s is string", "nope is defined or yes", "not nope is defined", "d.a is defined and d.a == 'two'", "2.0 is even", "(i is odd) == true", "l is sameas l", "[] is sameas []"], " }}")
)

METHODS = (
    each("{{ ", ["w.strip()", "w.lstrip()|tojson", "w.rstrip()|tojson", "'xxaxx'.strip('x')", "'xyayx'.lstrip('xy')", "'abc'.rstrip('cb')", "'\\u00a0\\u2003a\\u3000'.strip()", "'a,b,,c'.split(',')", "'a,b,,c'.split(',', 1)", "' a  b '.split()", "' a  b  c '.split(none, 1)", "'a,b,c'.rsplit(',', 1)", "' a b  c '.rsplit(none, 1)", "'a,b'.split(sep=',', maxsplit=1)", "''.split()", "''.split(',')", "m.splitlines()", "m.splitlines(true)", "'a\\x0bb\\x1cc\\u2028d'.splitlines()", "'k=v=w'.partition('=')", "'k=v=w'.rpartition('=')", "'kv'.partition('=')", "'kv'.rpartition('=')", "'é中é'.split('中')", "'<think>a</think>b'.split('</think>')[-1]"], " }}")
    + each("{{ ", ["s.startswith('He')", "s.startswith(('x', 'H'))", "s.startswith('llo', 2)", "s.endswith('ld')", "s.endswith('lo', 0, 5)", "s.endswith(())", "u.startswith('Straße')", "s.find('o')", "s.find('o', 5)", "s.find('z')", "s.rfind('o')", "u.find('中')", "u.find('', 3)", "s.index('W')", "s.rindex('l')", "s.count('l')", "'aaaa'.count('aa')", "'abc'.count('')", "s.replace('l', 'L')", "s.replace('l', 'L', 1)", "s.replace('', '-', 3)", "s.replace('o', '')", "', '.join(ls)", "''.join([])", "'-'.join('abc')"], " }}")
    + each("{{ ", ["s.upper()", "u.upper()", "u.lower()", "'ǆ ß it\\'s a1b'.title()", "u.capitalize()", "'aBcß'.swapcase()", "'Straße'.casefold()", "'İΑΣ'.lower()", "'ab'.center(5)|tojson", "'ab'.center(7, '*')", "'ab'.ljust(4, '.')", "'ab'.rjust(4)", "'é'.rjust(3, '中')", "'-42'.zfill(6)", "'a\\tb'.expandtabs(4)", "'abcabc'.removeprefix('abc')", "'abcabc'.removesuffix('bc')"], " }}")
    + each("{{ ", ["[%s]" % ", ".join(f"{v}.{m}()" for v in ["'abc'", "'ABC'", "'12'", "'²'", "'½'", "' \\t'", "''", "'aé中'", "'A b'", "'Ab Cd'", "'a1'"]) for m in ["isalpha", "isdigit", "isdecimal", "isnumeric", "isalnum", "isspace", "isupper", "islower", "istitle", "isascii", "isprintable"]], " }}")
    + each("{{ ", ["d.get('a')", "d.get('zz')", "d.get('zz', 5)", "d.keys()", "d.values()|list", "d.items()", "d.keys()|list", "'a' in d.keys()", "d.copy() == d", "d.keys() == d.copy().keys()", "{'a': 1}.items()|list", "d.pop('a') ~ d.get('a')", "d.pop('zz', 'none')", "d.setdefault('q', 3) ~ d.q", "d.update(x=1) ~ d.x", "{'a': 1}.popitem()", "d.clear() ~ d", "l.index(1)", "l.count(3)", "l.insert(1, 'x') ~ l", "l.extend('ab') ~ l", "l.remove(3) ~ l", "l.pop() ~ l", "l.pop(0) ~ l", "l.reverse() ~ l", "l.sort() ~ l", "l.sort(reverse=true) ~ l", "l.copy() ~ l.clear() ~ l", "(1, 2, 1).count(1)", "(1, 2).index(2)", "2.0.is_integer()", "l.insert(-1, 0) ~ l", "l.insert(99, 0) ~ l"], " }}")
    + each("{{ ", ["'%s and %s' % ('a', 1)", "'%s' % s", "'%d%%' % 50", "'%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5)", "'%.2f|%8.3f|%-8.1f|%e|%g' % (f, f, f, f, f)", "'%x %X %o %#x' % (255, 255, 8, 255)", "'%(a)s-%(b)d' % d", "'%r %s' % ('x', [1, 'y'])", "'%5s|%-5s|%.2s' % ('ab', 'cd', 'efg')", "'%c%c' % (65, 'é')", "'%*d' % (5, 3)", "'%i' % 3.9", "'%s' % (l,)", "'%s' % nope", "'%d' % true", "'%g %g %g' % (1e10, 1e-5, 100000.0)", "'%5.1f%%' % 12.34"], " }}")
    + each("{{ ", ["'{} {}'.format(1, 'a')", "'{0}{1}{0}'.format('a', 'b')", "'{x}-{y}'.format(x=1, y=2)", "'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')", "'{:5}|{:<5}|{:05d}|{:+}|{:,}'.format(1, 2, 3, 4, big)", "'{:.2f} {:.0f} {:e} {:g} {:.1%}'.format(f, f, f, f, 0.256)", "'{:x} {:X} {:#x} {:b} {:o} {:c}'.format(255, 255, 255, 5, 8, 65)", "'{!r} {!s}'.format('a', 'b')", "'{0.a} {1[0]} {0[b]}'.format(d, l)", "'{{{}}}'.format(1)", "'{:{}}|'.format('a', 4)", "'{}'.format(none)", "'{}{}'.format(l, d)", "'{:.3}'.format('abcdef')", "'{:10.3}|{:8}|{}'.format(3.14159, 2.5, 1e100)", "'{:_} {:,.2f}'.format(big, 1234567.891)", "'<|tok{}|>'.format('x')", "'{:.2}|{:.3}|{:.1}'.format(12.0, 12.0, 0.05)"], " }}")
)

ERRORS = [
    "{{ nope.x }}", "a\n{{ nope.x.y }}", "\n\n{{ nope() }}", "{{ nope + 1 }}", "{{ nope < 1 }}", "{{ nope['x'] }}", "{{ -nope }}", "{{ d.zz.y }}", "{{ l[9].x }}", "{{ nope[1:] }}", "{{ nope|int }}", "{{ nope|tojson }}", "{{ nope|indent }}", "{{ nil + 'a' }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' - 'b' }}", "{{ l + (1,) }}", "{{ 'a' * 'b' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}",
    "{{ 1 < 'a' }}", "{{ nil < 1 }}", "{{ [1] < ['a'] }}", "{{ d < d }}", "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ [1] in d }}", "{{ {[1]: 2} }}", "{{ s() }}", "{{ 1() }}", "{{ s.nope() }}", "{{ nil() }}", "{{ l[nil:'a'] }}", "{{ nil[1:] }}", "{{ d[1:] }}", "{{ s[::0] }}", "{{ -s }}",
    "{% for x in 5 %}{% endfor %}", "{% for x in nil %}{% endfor %}", "{% for x in namespace() %}{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% set a, b = 1, 2, 3 %}", "{% set a, b = 5 %}", "{% set d.a = 1 %}", "{% set nope.a = 1 %}", "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
    "{{ raise_exception('stop here') }}", "a\nb\n{% if yes %}\n{{ raise_exception('roles must alternate: ' ~ s) }}\n{% endif %}", "{{ raise_exception() }}", "{{ raise_exception('a', 'b') }}", "{{ strftime_now() }}", "{{ strftime_now(1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m(caller) %}{{ caller }}{% endmacro %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% call s %}{% endcall %}", "{% call s.upper() %}x{% endcall %}", "{% macro m() %}\n\n{{ nope.x }}\n{% endmacro %}\n{{ m() }}",
    "{{ s|nofilter }}", "{% if no %}{% for x in l %}{{ x|nofilter }}{% endfor %}{% endif %}", "{{ s is notest }}", "{% if yes %}{{ s|nofilter }}{% endif %}", "{{ l|map('nofilter')|list }}", "{{ l|select('notest')|list }}", "{{ l|map|list }}", "{{ l|map(foo=1)|list }}", "{{ l|selectattr|list }}", "{{ s|upper(1) }}", "{{ s|replace('a') }}", "{{ s|replace(x=1) }}", "{{ s|trim(1) }}", "{{ s|default(1, 2, 3) }}", "{{ l|join(1, 2, 3) }}", "{{ s|trim(chars='a', chars='b') }}", "{{ i is divisibleby }}", "{{ s is odd }}", "{{ i is defined(1) }}", "{{ i is divisibleby 0 }}",
    "{{ 5|length }}", "{{ nil|length }}", "{{ 5|list }}", "{{ 5|first }}", "{{ (l|map('string'))|last }}", "{{ 5|join }}", "{{ nil|items|list }}", "{{ l|dictsort }}", "{{ d|dictsort(by='x') }}", "{{ [1, 'a']|sort }}", "{{ [1, 'a']|min }}", "{{ ['a']|sum }}", "{{ [[1]]|unique|list }}", "{{ namespace()|tojson }}", "{{ range(3)|tojson }}", "{{ d.items()|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ l|tojson(indent=1.5) }}", "{{ 'x'|round }}", "{{ 1.5|round(0, 'up') }}", "{{ 'inf'|float|int }}", "{{ s|center('x') }}", "{{ s|truncate(1) }}", "{{ l|slice(0)|list }}", "{{ nil|abs }}", "{{ d|urlencode(1) }}",
    "{{ s.split('') }}", "{{ s.split(1) }}", "{{ s.strip(1) }}", "{{ s.index('zz') }}", "{{ s.replace('a') }}", "{{ s.replace(1, 2) }}", "{{ ','.join(l) }}", "{{ ','.join(5) }}", "{{ s.startswith(1) }}", "{{ s.startswith(['a']) }}", "{{ s.center(5, 'ab') }}", "{{ s.upper(1) }}", "{{ d.get() }}", "{{ d.pop('zz') }}", "{{ l.index(99) }}", "{{ l.remove(99) }}", "{{ [].pop() }}", "{{ l.pop(9) }}", "{{ d.get(a=1) }}", "{{ s.partition('') }}", "{{ {}.popitem() }}", "{% for k in d %}{% set _ = d.update({k ~ 'x': 1}) %}{% endfor %}",
    "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % (1, 2) }}", "{{ 'a' % 1 }}", "{{ '%z' % 1 }}", "{{ '%5%' % 1 }}", "{{ '%(a)%' % d }}", "{{ l|sort(reverse=none) }}", "{{ l|sort(nope) }}", "{{ l.sort(reverse='') }}", "{{ d|dictsort(reverse=1.0) }}", "{{ s.splitlines(none) }}", "{{ '%' % 1 }}", "{{ '%(a)s' % 1 }}", "{{ '%(zz)s' % d }}", "{{ '%c' % 'ab' }}", "{{ '%x' % 1.5 }}", "{{ '{'.format() }}", "{{ '}'.format() }}", "{{ '{}'.format() }}", "{{ '{x}'.format() }}", "{{ '{:d}'.format('a') }}", "{{ '{:d}'.format(1.5) }}", "{{ '{0}{}'.format(1) }}", "{{ '{:5}'.format(none) }}", "{{ '{!x}'.format(1) }}", "{{ '{:=5}'.format('a') }}", "{{ '{:,}'.format('a') }}", "{{ 'a'|format(1, x=2) }}",
    "{{ range() }}", "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ range(1, 2, 3, 4) }}", "{{ range(x=1) }}", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ namespace(1) }}", "{{ cycler() }}", "{{ dict(**l) }}", "{{ range(*5) }}", "{{ dict(a=1, **{'a': 2}) }}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}", "{% filter length %}a{% endfilter %}",
    "{{ loop.index }}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% break %}", "{% if yes %}{% continue %}{% endif %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in l %}{% else %}{% break %}{% endfor %}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{{", "{{ }}", "{{ i", "{{ i %}", "{%", "{% %}", "{% if", "{% if yes %}", "{% if yes %}a", "{% if yes %}a{% else %}b", "{% if yes %}{% endfor %}", "{% endif %}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for 1 in l %}{% endfor %}", "{% for x.y in l %}{% endfor %}", "{% for x in l %}", "{% set %}", "{% set x %}", "{% set 1 = 2 %}", "{% set x = %}", "{% set true = 1 %}", "{% set x[0] = 1 %}", "{% set f() = 1 %}", "{% unknown %}", "{% do x %}", "{% macro %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m( %}{% endmacro %}", "{% macro true() %}{% endmacro %}", "{% call %}{% endcall %}", "{% filter %}{% endfilter %}", "{% with a %}{% endwith %}", "{% if x == %}{% endif %}", "{% else %}", "{% elif x %}", "{% if yes %}{% else %}{% elif no %}{% endif %}",
    "{# open", "{% raw %}open", "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ [1) }}", "{{ {'a' 1} }}", "{{ {'a'} }}", "{{ 1 2 }}", "{{ a b }}", "{{ 1 + }}", "{{ * 2 }}", "{{ a. }}", "{{ a.'b' }}", "{{ a[1 }}", "{{ l[1:2:3:4] }}", "{{ l[1:2, 3] }}", "{{ a | }}", "{{ a | 1 }}", "{{ a is }}", "{{ a is is b }}", "{{ a is not }}", "{{ a not b }}", "{{ a if }}", "{{ a if b else }}", "{{ f(a=1, 2) }}", "{{ f(**d, 1) }}", "{{ f(*l, *l) }}", "{{ f(a=1, a=2) }}", "{{ f(, ) }}", "{{ $ }}", "{{ a ! b }}", "{{ a ? b }}", "{{ 'a\\x4' }}", "{{ a = 1 }}", "{{ 012 }}", "{{ @x }}", "\n\n{{ i }}\n{{ 1 + }}", "{{ not }}", "{{ a; b }}", "{{ lambda: 1 }}", "{{ x := 1 }}", "{{ a && b }}",
]

ROOT = os.path.dirname(os.path.abspath(__file__))


def line_of(error):
    """The template's line that an error is about: the syntax error's, or that of the innermost frame."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<template>"]
    return frames[-1] if frames else None


def case(template):
    variables = json.loads(json.dumps(VARS))
    try:
        return {"template": template, "text": reference.ENV.from_string(template).render(**variables)}
    except Exception as e:
        out = {"template": template, "error": type(e).__name__, "line": line_of(e)}
        if type(e) is jinja2.TemplateError:     # raise_exception
            out["message"] = str(e)
        return out


def main():
    topics = {"syntax": SYNTAX, "control": CONTROL, "scope": SCOPE, "whitespace": WHITESPACE, "filters": FILTERS,
              "tests": TESTS, "methods": METHODS, "errors": ERRORS}
    for name, templates in topics.items():
        cases = [case(t) for t in templates]
        wrong = [c for c in cases if ("error" in c) != (name == "errors")]
        for c in wrong:
            print(f"{name}: {c}")
        with open(os.path.join(ROOT, name + ".json"), "w", encoding="utf-8") as f:
            f.write('{"vars": ' + json.dumps(VARS, ensure_ascii=False) + ',\n "cases": [\n')
            f.write(",\n".join("  " + json.dumps(c, ensure_ascii=False) for c in cases))
            f.write("\n]}\n")
        print(f"{name}: {len(cases)} cases, {len(wrong)} of the other kind")


if __name__ == "__main__":
    main()
