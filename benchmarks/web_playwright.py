"""A recipe: a plain Playwright script visits the bench and follows a plan; prints the scores as JSON.

    make web-bench                                             # in pwagents' environment
    pip install playwright                                     # in one of its own, with any Chromium
    python benchmarks/web_playwright.py http://127.0.0.1:8011 TASK "$(cat plan.json)"

A plan is a list of steps: ``["recall", question]``, ``["open", "host.test/path"]``, ``["press", "a button"]``
and ``["answer", text]``. An agent decides them as it goes. Nothing of pwagents is needed; the environment
variable WEB_BENCH_KEY holds the key of a secret edition.
"""

import json
import os
import shutil
import sys
import urllib.request

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)  # None: the one that Playwright brought


def ask(url: str, token: str = "", **fields: str) -> dict:
    """Send fields to the bench's API, and return its answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def begin(bench: str, task_id: str) -> dict:
    """Begin a task: its query, the browser's first address, and the token for the API."""
    return ask(f"{bench}/tasks/{task_id}", os.environ.get("WEB_BENCH_KEY", ""))


def address(place: str, start_url: str) -> str:
    """Return the address of ``host.test/path`` in the session that the start address names."""
    host, _, path = place.partition("/")
    return start_url.replace("start.test", host, 1) + path


def main(bench: str, task_id: str, plan: list[list[str]]) -> dict:
    """Follow a plan; return scores, reasons and trajectory."""
    from playwright.sync_api import sync_playwright

    task, answer = begin(bench, task_id), ""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=BROWSER) as browser:
        page = browser.new_page()
        page.goto(task["start_url"])
        for verb, text in plan:
            if verb == "recall":  # an agent reads the records
                ask(f"{bench}/recall", task["token"], query=text)
                continue
            ask(f"{bench}/note", task["token"], action=f"{verb} {text}")
            if verb == "open":
                page.goto(address(text, task["start_url"]))
            elif verb == "press":
                page.get_by_role("button", name=text, exact=True).first.click()
            else:
                answer = text
    return ask(f"{bench}/finish", task["token"], answer=answer)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
