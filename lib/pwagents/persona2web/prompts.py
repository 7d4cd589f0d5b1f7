"""What the web agent's language model is told: rules, actions, and the three calls about the memory.

All wording is ours. Page texts, browsing records and what was read from them come from outside and are fenced
wherever they are told.
"""

from pwagents.persona2web.types import Architecture

SYSTEM = """\
You carry out a task in a web browser for one person. The task may leave out which website to use and what the
person prefers; their browsing history tells, where you were given something from it. What it does not tell,
you have to decide by yourself: nobody answers questions{but_asked}.

Do what the task asks and no more. Never confirm a payment. The task ends with your last action, so check
before that whether everything is as the person would want it."""
ASK = "\nask [question]                   put a question to the person; no other action in that step"
MAY_ASK = ", except for what you put to the person with ask [question]"

ACTIONS: dict[Architecture, str] = {
    "occam": """\
You see the whole page as a tree. What can be used has a number in brackets. Actions, one a step:
click [12]                       follow a link, press a button, or choose an option by its number
type [12] [text] [1]             write into a text field; [1] presses Enter, [0] does not
go_back                          return to the page before
note [text]                      keep something for later steps
branch [plan]                    begin a new part of the plan
prune [0] [why]                  give up the present part and return to the plan with this number
stop [answer]                    end the task; the answer may be empty where nothing was asked""",
    "indexed": """\
You see what can be used on the page, each with its number in brackets, and the text between. Actions, up to
three a step, in the order in which they are to be done:
click [12]                       follow a link, press a button
type [12] [text] [1]             write into a text field; [1] presses Enter, [0] does not
select [12] [option]             choose an option of a list by its text
go_to [address]                  open an address
go_back                          return to the page before
stop [answer]                    end the task; the answer may be empty where nothing was asked""",
}
REPLY = """\
Reply with these lines and nothing else:
Reason: one or two sentences: what you know of the person that matters now, and what to do next
Action: the action"""

NEED_MEMORY = """\
Before your next step, decide whether you need to look into the person's browsing history. Ask for one thing
at a time, such as the website they use for something, or what they usually choose there; what you asked
before stands above. Looking costs a step. Reply with one JSON object and nothing else:
{"need_memory": true or false, "query": "what to look for, empty for nothing", "reason": "why"}"""

PLAN_QUERIES = """\
Below is a task that a person gave you. It may leave out the website and what they prefer. You may now ask
their browsing history up to {most} questions, and never again later. Reply with one JSON object and nothing
else:
{{"queries": ["one thing to look for", ...], "reason": "why these"}}"""

READ = """\
Below are records of a person's browsing history: time, kind, what it was about, website. They were found for
the question that follows. Records show habits without naming them: a booking of a window seat may read
"seat 14A". Some were cancelled or are exceptions: go by what the person does most, and lately where it
changed. Answer in one or two sentences, naming the website or the value where the records show it, and say so
where they do not."""

REWRITE = """\
Below are a task that a person gave you, and what their browsing history says. Write the task anew, so that it
names the website and every preference it left out. Change nothing else. Reply with the new task alone."""

NO_ACTION = "your reply held no line that begins with 'Action:'"
TOO_MANY = "your reply held {found} actions; at most {most} a step"
ASK_ALONE = "ask was not alone: put a question to the person in a step of its own; nothing was done"
NO_JSON = "your reply about the browsing history was no JSON object of the form asked for: {mistake}"
