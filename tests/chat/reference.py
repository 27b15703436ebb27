"""jinja2 set up as transformers' apply_chat_template does, and our renderer beside it.

The one difference: transformers forbids to change lists and dicts; templates in circulation do that
(ids.append(...)), and so may ours."""
import functools
import json
import os
import subprocess
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja2 import nodes


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: marks the assistant's text, prints it unchanged."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return env


ENV = environment()


@functools.lru_cache(maxsize=4)
def compiled(template):
    return ENV.from_string(template)


def expected(template, variables):
    """("text", rendered) or ("error", message)."""
    try:
        return "text", compiled(template).render(**json.loads(json.dumps(variables)))
    except Exception as e:                      # any failure of the template
        return "error", f"{type(e).__name__}: {e}"


class Ours:
    """The program chat_pipe."""

    def __init__(self, program):
        self.program = program
        self.start()

    def start(self):
        self.p = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables):
        request = json.dumps({"template": template, "vars": variables}) + "\n"
        self.p.stdin.write(request.encode())
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            status = self.p.wait()
            self.start()
            return "crash", f"the program ended with status {status}"
        answer = json.loads(line)
        return ("text", answer["text"]) if "text" in answer else ("error", answer["error"])


def find_program(given):
    here = os.path.dirname(os.path.abspath(__file__))
    for path in [given, "./chat_pipe", os.path.join(here, "../../build/chat_pipe")]:
        if path and os.path.exists(path):
            return path
    raise SystemExit("chat_pipe is not built; give its path")
