"""Runs tests of rdma-core and prints a line for each: pass, skip or fail, its name, and why.

usage: run.py DIRECTORY ADDRESS MODULE...

DIRECTORY has the tests of rdma-core in the package tests. ADDRESS is that of the device's
port, which the tests look for in sysfs. Names in the variable LEFT_OUT are not run.
"""
import os
import sys
import unittest

directory, address, modules = sys.argv[1], sys.argv[2], sys.argv[3:]
sys.argv = ['run', '--dev', 'stag0', '--port', '1', '--gid', '0']
sys.path[:0] = [directory, os.path.join(directory, 'tests')]

import importlib  # noqa: E402

import args_parser  # noqa: E402

args_parser.parser.parse_args()
base = importlib.import_module('tests.base')
select = base.RDMATestCase._select_config


def with_address(self):
    select(self)
    self.ip_addr = address


base.RDMATestCase._select_config = with_address


class Lines(unittest.TestResult):
    def line(self, verdict, test, why=''):
        print(verdict, test.id().removeprefix('tests.'), why.strip().splitlines()[-1] if why else '', flush=True)

    def addSuccess(self, test):
        self.line('pass', test)

    def addSkip(self, test, reason):
        self.line('skip', test, reason)

    def addError(self, test, err):
        self.line('fail', test, self._exc_info_to_string(err, test))

    addFailure = addError


def run(suite, result, left_out):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            run(test, result, left_out)
        elif test.id().removeprefix('tests.') not in left_out:
            test(result)


left_out = os.environ.get('LEFT_OUT', '').split()
for module in modules:
    run(unittest.defaultTestLoader.loadTestsFromName('tests.' + module), Lines(), left_out)
