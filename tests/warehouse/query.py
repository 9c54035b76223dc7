"""Runs a statement in DuckDB and prints its rows, one JSON list a line: query.py STATEMENT."""

import json
import sys

import duckdb

for row in duckdb.sql(sys.argv[1]).fetchall():
    print(json.dumps(row))
