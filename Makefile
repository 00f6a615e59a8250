# Each target is one line that you can type, but for install. Variables: FUZZTIME
# (per fuzz target), GOTESTFLAGS (for go test), STAG_NEED (what must not be
# skipped), STAG_LONG (1: also what takes minutes), STAG_BRIEF (1: verbs-test runs
# each kind of row once, and interop leaves out some of the longest rows),
# STAG_FABTESTS (of verbs-test: directory with fabtests), BIN (what is built), PREFIX
# and DESTDIR (where install puts it, and below which root).
FUZZTIME ?= 10s
BIN ?= bin
PREFIX ?= /usr/local
.PHONY: all build verbs generate test demo interop verbs-test fuzz bench man install uninstall lint clean

all: build lint test

build:
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/stag ./cmd/stag

# libibverbs.so.1 and librdmacm.so.1, in C, for programs that know nothing of stag. Only
# this target takes a C compiler and the headers of rdma-core.
verbs:
	@command -v $(firstword $(CC)) >/dev/null || { echo "make verbs: no C compiler $(CC): install gcc" >&2; exit 1; }
	@printf '#include <infiniband/verbs.h>\n#include <rdma/rsocket.h>\n' | $(CC) -E - >/dev/null 2>&1 || { echo "make verbs: no infiniband/verbs.h or rdma/rsocket.h: install libibverbs-dev and librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora)" >&2; exit 1; }
	$(MAKE) -C rdma/verbs OUT=$(abspath $(BIN))/verbs

# The BPF objects and their Go, which are in the repository. It takes clang 14.
generate:
	go generate ./...

# As go test prints it, with a line for each test that is skipped.
test:
	go vet ./... && go run ./test/ran test $(GOTESTFLAGS) ./...

demo:
	go run ./cmd/stag demo

# Against Linux's soft-iWARP driver, rping and perftest in a guest; as root.
interop:
	bash test/interop/image/prepare.sh && bash test/interop/image/trixie.sh && bash test/interop/image/zero.sh && go test -tags interop -json -count=1 -timeout 45m ./test/interop | go run ./test/interop/matrix

# Programs of the distribution over stag's libibverbs and librdmacm, between two
# namespaces; as root. It takes what .ci/run installs. STAG_BRIEF=1 runs each kind of
# row once, as CI does. fabtests, which Debian does not have, run if STAG_FABTESTS
# names the directory of their programs.
verbs-test:
	$(if $(STAG_FABTESTS),,@echo "verbs-test: without fabtests: STAG_FABTESTS names no directory with its programs")
	go test -tags verbs $(if $(STAG_FABTESTS),,-skip '^TestFabtests$$') -json -count=1 -timeout 45m -p 1 ./test/verbs ./test/verbs/suite | go run ./test/interop/matrix

fuzz:
	bash test/fuzz.sh $(FUZZTIME)

bench:
	go test -p 1 -run '^$$' -bench . -benchmem ./... && go run ./test/bench

# Manual pages of section 8, and what shells complete the command line with.
man: build
	$(BIN)/stag man -o $(BIN)/man && for s in bash zsh fish; do $(BIN)/stag completion $$s > $(BIN)/stag.$$s || exit 1; done

# What make man has built, at the places where people look for it. It builds
# only if nothing is there: root often cannot, in somebody else's repository.
AT = $(DESTDIR)$(PREFIX)
# Where links of the documents lead whose files are not installed.
SOURCE = https://github.com/stag-rdma/stag/blob/main
EXAMPLES = $(filter-out %_test.go,$(wildcard docs/examples/*/*.go))
UNITS = $(notdir $(wildcard docs/systemd/*.service docs/systemd/*.socket))
install: $(if $(wildcard $(BIN)/stag.fish),,man)
	install -D -m 0755 -t $(AT)/bin $(BIN)/stag
	for f in $(wildcard $(BIN)/verbs/*.so.1); do install -D -m 0644 -t $(AT)/lib/stag $$f || exit 1; done
	install -D -m 0644 -t $(AT)/share/man/man8 $(BIN)/man/*.8
	install -D -m 0644 $(BIN)/stag.bash $(AT)/share/bash-completion/completions/stag
	install -D -m 0644 $(BIN)/stag.zsh $(AT)/share/zsh/site-functions/_stag
	install -D -m 0644 $(BIN)/stag.fish $(AT)/share/fish/vendor_completions.d/stag.fish
	install -D -m 0644 -t $(AT)/lib/systemd/system $(UNITS:%=docs/systemd/%)
	sed -i 's|/usr/local/|$(PREFIX)/|' $(UNITS:%=$(AT)/lib/systemd/system/%)
	install -D -m 0644 -t $(AT)/share/stag/grafana docs/grafana/*.json
	install -D -m 0644 -t $(AT)/share/doc/stag README.md LICENSE NOTICE
	install -D -m 0644 -t $(AT)/share/doc/stag/docs docs/*.md
	sed -i 's|](\.\./|]($(SOURCE)/|g' $(AT)/share/doc/stag/docs/*.md
	install -D -m 0644 -t $(AT)/share/doc/stag/docs/systemd $(UNITS:%=$(AT)/lib/systemd/system/%)
	install -D -m 0644 -t $(AT)/share/doc/stag/docs/grafana docs/grafana/*.json
	install -D -m 0644 -t $(AT)/share/doc/stag/docs/charts docs/charts/*.svg
	for f in $(EXAMPLES); do install -D -m 0644 $$f $(AT)/share/doc/stag/$$f || exit 1; done

uninstall:
	rm -f $(AT)/bin/stag $(AT)/share/man/man8/stag.8 $(AT)/share/man/man8/stag-*.8 $(UNITS:%=$(AT)/lib/systemd/system/%)
	rm -f $(AT)/share/bash-completion/completions/stag $(AT)/share/zsh/site-functions/_stag $(AT)/share/fish/vendor_completions.d/stag.fish
	rm -rf $(AT)/share/stag $(AT)/share/doc/stag $(AT)/lib/stag

lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)" && go vet ./... && go tool staticcheck ./... && go vet -tags interop ./test/interop && go tool staticcheck -tags interop ./test/interop && go vet -tags verbs ./test/verbs/... && go tool staticcheck -tags verbs ./test/verbs/...

clean:
	rm -rf $(BIN) coverage.out && go clean -testcache
