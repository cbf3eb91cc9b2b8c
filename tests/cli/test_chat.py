"""octavo chat: a conversation over standard input."""

import os
import pty
import signal
import subprocess
import time

from program import USAGE, environment

FLAGS = ["--quiet", "--max-tokens", "8", "--dtype", "float32"]


def test_each_line_is_a_message_of_one_conversation(octavo, text_model):
    once = octavo.succeeds("chat", text_model, *FLAGS, stdin="Who was Moses?\n").stdout
    assert once.strip()
    reset = octavo.succeeds("chat", text_model, *FLAGS,
                            stdin="Who was Moses?\n\n/reset\nWho was Moses?\n/exit\nnever read\n").stdout
    assert reset == once + once
    both = octavo.succeeds("chat", text_model, *FLAGS, stdin="Who was Moses?\nWho was Moses?").stdout
    assert both.startswith(once) and both != reset  # the second answer has seen the first


def test_the_first_answer_is_that_of_run(octavo, text_model):
    answer = octavo.succeeds("run", text_model, *FLAGS, "--system", "Be brief.", "-p", "Who was Moses?").stdout
    chat = octavo.succeeds("chat", text_model, *FLAGS, "--system", "Be brief.", stdin="Who was Moses?\n").stdout
    assert chat == answer


def test_nothing_to_say(octavo, text_model):
    assert octavo.succeeds("chat", text_model, *FLAGS, stdin="").stdout == ""


def test_a_message_beyond_the_context(octavo, text_model):
    octavo.fails(USAGE, "the prompt has", "context of 512",
                 args=["chat", text_model, *FLAGS], stdin="word " * 600 + "\n")


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, command):
        self.main, side = pty.openpty()
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment(),
                                        start_new_session=True)
        os.close(side)
        self.seen = b""

    def wait_for(self, text, times=1):
        deadline = time.monotonic() + 60
        while self.seen.count(text) < times:
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += os.read(self.main, 65536)
            except OSError:
                break
        assert self.seen.count(text) >= times, self.seen

    def wait_for_answer(self, question, times):
        self.wait_for(question, times)
        while self.seen.endswith(question):
            self.seen += os.read(self.main, 65536)

    def type(self, text):
        os.write(self.main, text)


def test_on_a_terminal(octavo, long_model):
    terminal = Terminal([octavo.binary, "chat", long_model, "--max-tokens", "8000", "--ignore-eos"])
    terminal.wait_for(b"> ")
    assert b"/reset" in terminal.seen
    for answers in range(1, 3):  # and the conversation goes on
        terminal.type(b"Who was Moses?\n")
        terminal.wait_for_answer(b"Who was Moses?\r\n", answers)
        os.kill(terminal.process.pid, signal.SIGINT)  # stops the answer
        terminal.wait_for(b"\n> ", answers + 1)
    terminal.type(b"\x04")
    assert terminal.process.wait(timeout=60) == 0


def test_a_message_that_is_too_long_does_not_end_a_conversation_on_a_terminal(octavo, text_model):
    terminal = Terminal([octavo.binary, "chat", text_model, *FLAGS, "--max-model-len", "64"])
    terminal.wait_for(b"> ")
    terminal.type(b"word " * 100 + b"\n")
    terminal.wait_for(b"octavo: error: the prompt has")
    terminal.wait_for(b"/reset starts")
    terminal.wait_for(b"\n> ")
    terminal.type(b"Moses?\n")
    terminal.wait_for_answer(b"Moses?\r\n", 1)
    terminal.wait_for(b"\n> ", 2)
    terminal.type(b"/exit\n")
    assert terminal.process.wait(timeout=60) == 0


def test_ctrl_c_at_the_prompt_ends(octavo, text_model):
    terminal = Terminal([octavo.binary, "chat", text_model, *FLAGS])
    terminal.wait_for(b"> ")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(timeout=60) == 130
