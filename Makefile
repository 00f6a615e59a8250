# Each target is one line that you can type, but for install. Variables: FUZZTIME
# (per fuzz target), GOTESTFLAGS (for go test), STAG_NEED (what must not be
# skipped), STAG_LONG (1: also what takes minutes), BIN (what is built), PREFIX
# and DESTDIR (where install puts it, and below which root).
FUZZTIME ?= 10s
BIN ?= bin
PREFIX ?= /usr/local
.PHONY: all build generate test demo interop fuzz bench man install uninstall lint clean

all: build lint test

build:
	CGO_ENABLED=0 go build -trimpath -o $(BIN)/stag ./cmd/stag

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
	bash test/interop/image/prepare.sh && bash test/interop/image/trixie.sh && go test -tags interop -json -count=1 -timeout 20m ./test/interop | go run ./test/interop/matrix

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
UNITS = $(notdir $(wildcard docs/systemd/*.service))
install: $(if $(wildcard $(BIN)/stag.fish),,man)
	install -D -m 0755 -t $(AT)/bin $(BIN)/stag
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
	rm -rf $(AT)/share/stag $(AT)/share/doc/stag

lint:
	test -z "$$(gofmt -l . | tee /dev/stderr)" && go vet ./... && go tool staticcheck ./... && go vet -tags interop ./test/interop && go tool staticcheck -tags interop ./test/interop

clean:
	rm -rf $(BIN) coverage.out && go clean -testcache
