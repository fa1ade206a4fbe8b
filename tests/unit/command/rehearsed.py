"""Twenty small processors, each with a file and with a change that a rehearsal has to flag."""

from typing import NamedTuple


class Case(NamedTuple):
    """A processor in one folder with the others, which `main.process` chooses by the folder of the key."""

    name: str
    content: bytes
    source: str
    old: str
    new: str
    """The change: this text takes the place of `old`."""
    shown: str
    """A text of the line that the rehearsal prints for the change."""
    alone: str = "differs"
    """The outcome of the change without the old code."""
    same_alone: str = "same"
    """The outcome of the unchanged code without the old one. It is undecided if no row keeps what was written, and if
    it depends on time or chance."""


CSV = b"number,cents\na,100\nb,250\nc,-50\n"
MAIN = """
from importlib import import_module


def process(change):
    return import_module("p_" + change.key.partition("/")[0]).process(change)
"""
HEAD = """
import os
from intake_ledger import Commit, NotYet, Rejects, Unprocessable
"""
_ROWS = """
def process(change):
    return str(sum(1 for row in change.csv_rows()))
"""
_TOTAL = """
def process(change):
    return str(sum(row["cents"] for row in change.csv_rows(columns={"number": str, "cents": int})))
"""
_TRANSACT = """
def process(change):
    rows = list(change.csv_rows(columns={"number": str, "cents": int}))
    item = {"file": {"S": change.key}, "tags": {"SS": sorted({row["number"] for row in rows})}, "n": {"N": "3"}}
    return Commit(change.key, transact=[{"Put": {"TableName": "totals", "Item": item}}])
"""
_OUTPUT = """
import json


def process(change):
    body = json.dumps({"fence": change.fence, "rows": [row["cents"] for row in change.csv_rows()]})
    change.output(os.environ["OUTPUTS"], change.key + ".json").put(body.encode(), content_type="application/json")
"""
_REMOVES = """
def process(change):
    output = change.output(os.environ["OUTPUTS"], change.key)
    output.put(b"%d" % change.fence)
    if change.size < 100:
        output.remove()
"""
_CHECKS = """
def process(change):
    for row in change.csv_rows(columns={"number": str, "cents": int}):
        if row["cents"] < -100:
            raise Unprocessable("a credit note: " + row["number"])
    return "checked"
"""
_WAITS = """
def process(change):
    if change.size > 10_000:
        raise NotYet("the price list is missing")
    return "priced"
"""
_ONCE = """
from intake_ledger.once import OnceLedger

mails = OnceLedger("mails", table=os.environ["INTAKE_TABLE_NAME"])


def process(change):
    for row in change.csv_rows():
        with mails.once(key=row["number"], identity=change.idempotency_key) as claim:
            claim.result = row["cents"]
"""
_REJECTS = """
def process(change):
    good = change.csv_rows(columns={"number": str, "cents": amount}, on_error=Rejects(max_share=0.9))
    return str(len(list(good)))


def amount(text):
    if int(text) < 0:
        raise ValueError("negative")
    return int(text)
"""
_DATED = """
from datetime import UTC, datetime
import time


def process(change):
    day = datetime.now(UTC)
    return f"{day.isoformat()} {time.time()} {time.strftime('%H')} {datetime.now(UTC) is not None}"
"""
_CHANCE = """
import random
import secrets
import uuid


def process(change):
    names = [uuid.uuid4(), uuid.uuid1(), secrets.token_hex(4), random.random(), os.urandom(4).hex()]
    return f"{len(change.open().read())} " + " ".join(map(str, names))
"""
_FILE = """
import csv
import io
import tempfile


def process(change):
    name = f"/tmp/rehearsed-{os.getpid()}"  # Lambda has no other place
    with change.download() as file, tempfile.NamedTemporaryFile("w+") as copy, open(name, "w") as other:
        copy.write(file.read().decode())
        other.write("x")
        os.remove(name)
        copy.seek(0)
        return str(sum(1 for row in csv.reader(copy)))
"""
_LINES = """
def process(change):
    return ",".join(value["id"] for value in change.json_lines())
"""
_LATIN = """
def process(change):
    return change.read(1000).decode("latin-1")
"""
_RETURNS = """
def process(change):
    return None if change.size else 7
"""
_GZIP = """
def process(change):
    change.output(os.environ["OUTPUTS"], change.key + ".gz").put(change.read(1000), content_type="text/csv")
"""
_THREADS = """
import asyncio
from concurrent.futures import ThreadPoolExecutor


def process(change):
    async def half(text):
        return await asyncio.to_thread(len, text)

    with ThreadPoolExecutor(2) as pool:
        lines = list(pool.map(str.upper, change.read(1000).decode().splitlines()))
    return str(asyncio.run(half(lines[0])))
"""
_UNKNOWN = ("undecided", "undecided")
CASES = (
    Case("rows", CSV, _ROWS, "change.csv_rows()", "list(change.csv_rows())[1:]", "result: 3 -> 2"),
    Case("total", CSV, _TOTAL, 'row["cents"] for', 'abs(row["cents"]) for', "result: 300 -> 400"),
    Case("encoding", "Zürich".encode("latin-1"), _LATIN, "latin-1", "cp850", "result: Z"),
    Case("item", CSV, _TRANSACT, '"N": "3"', '"N": "4"', "transact.Put.Item.n.N: 3 -> 4", *_UNKNOWN),
    Case("table", CSV, _TRANSACT, '"totals"', '"sums"', "transact.Put.TableName: totals -> sums", *_UNKNOWN),
    Case(
        "writes",
        CSV,
        _TRANSACT,
        "transact=[{",
        "transact=[] and [{",
        "transact: Put of totals -> none",
        "differs",
        "undecided",
    ),
    Case("content", CSV, _OUTPUT, 'row["cents"]', 'row["cents"].lstrip("-")', "55 bytes -> 54 bytes"),
    Case("moved", CSV, _OUTPUT, '".json"', '".jsn"', ".jsn", "undecided"),
    Case("typed", CSV, _OUTPUT, "application/json", "text/json", "application/json -> text/json"),
    Case("removed", CSV, _REMOVES, "< 100", "< 10", "removed -> written"),
    Case("stricter", CSV, _CHECKS, "< -100", "< 0", "committed -> rejected with Unprocessable: a credit note: c"),
    Case("broken", CSV, _CHECKS, '["cents"]', '["amount"]', "committed -> fails with KeyError: 'amount'"),
    Case("waits", CSV, _WAITS, "> 10_000", "> 10", "committed -> waits with NotYet: the price list is missing"),
    Case("once", CSV, _ONCE, 'row["cents"]', '"1"', "once: ", *_UNKNOWN),
    Case("rejects", CSV, _REJECTS, "int(text) < 0", "int(text) < 200", "rows: [3, 1] -> [3, 2]"),
    Case("dated", CSV, _DATED, "isoformat()", "date()", "result: ", *_UNKNOWN),
    Case("chance", CSV, _CHANCE, "read())}", "read(5))}", "result: ", *_UNKNOWN),
    Case("file", CSV, _FILE, "csv.reader(copy)", "csv.DictReader(copy)", "result: 4 -> 3"),
    Case("lines", b'{"id": "a"}\n\n{"id": "b"}\n', _LINES, '","', '";"', "result: a,b -> a;b"),
    Case("returns", CSV, _RETURNS, "if change.size", "if not change.size", "rejected with WrongReturnError"),
    Case("gzip", CSV, _GZIP, "change.read(1000)", "change.read(1000).upper()", "other content of"),
    Case("threads", CSV, _THREADS, "lines[0]", "lines[1]", "result: 12 -> 5"),
)
