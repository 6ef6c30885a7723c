# beanpole: `make help` lists the words.
#
# Needs GNU make, a POSIX shell and a Rust toolchain. Variables, given as `make WORD NAME=VALUE`:
#
#   PREFIX, BINDIR, MANDIR   where `install` puts things             DESTDIR         a folder to put in front, for packages
#   SYSTEMDUNITDIR           where systemd units go; none go anywhere if it is empty
#   SBINDIR                  where `install GEARMAND=1` puts the link that has the program take the place of gearmand
#   CARGO, CARGOFLAGS        the cargo to use and its flags          CARGO_TARGET_DIR, CARGO_BUILD_TARGET   as cargo has them
#   PORT                     the port of `run`                       ARGS            more arguments, for `run` and `bench`
#   BEANSTALKD, GEARMAND     the original daemons, for `compat`      PROGRAM         what `install` installs, `hostile` attacks
#   ROWS, ROUNDS             of `cluster`: which faults, how often each
#   TLS=1                    builds, and tests, the program with TLS
#   SEED, RESTARTS, ALSO     of `powercut`: where chance begins, how much is tried, and which checks count that are switched off

.SUFFIXES:

CARGO ?= cargo
RUSTC ?= rustc
CARGOFLAGS ?= --locked

# With TLS=1, what is built and tested speaks TLS.
TLS =
override CARGOFLAGS += $(if $(TLS),--features tls)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
MANDIR ?= $(PREFIX)/share/man
SYSTEMDUNITDIR ?=
INSTALL ?= install

# Not taken from the environment, where these names may mean something else.
PORT = 11300
ARGS =
SEED =
RESTARTS =
ROWS = 1,2,3,4,5,6,8,10,11,12,14
ROUNDS = 1
ALSO =
TRACE =
CUT =

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
MANPAGES := $(wildcard man/*.[1-9])
UNITS := beanpole.service beanpole.socket

# Where cargo builds. It is asked once, when first needed; `install` may well run where there is no cargo.
TARGET_DIR = $(eval TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CARGO_BUILD_TARGET_DIR),$(asked_cargo),target))$(TARGET_DIR)
asked_cargo = $(shell $(CARGO) metadata --no-deps --offline --format-version 1 2>/dev/null \
	| sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')

PROGRAM = $(TARGET_DIR)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release/beanpole

# The triple that this machine builds for, and the same with musl for a C library.
HOST = $(shell $(RUSTC) -vV | sed -n 's/^host: //p')
MUSL = $(subst -gnu,-musl,$(HOST))
HAS_MUSL = $(wildcard $(shell $(RUSTC) --print target-libdir --target $(MUSL) 2>/dev/null)/libstd-*.rlib)

# Binds the address and gives it back without serving, since the second place can never be listened on.
TAKEN = $(findstring in use,$(shell '$(PROGRAM)' -l 127.0.0.1:$(PORT) -l unix:/ 2>&1))

.PHONY: all build run static test lint check compat crash cluster powercut fmt bench bench-quick install uninstall dist clean help

all: build ## build (what plain `make` does)

build: ## build the program, optimised
	$(CARGO) build --release $(CARGOFLAGS)

run: build ## build, then run a queue on 127.0.0.1:11300 until Ctrl-C; PORT=11301 takes another port
	@$(if $(TAKEN),$(error port $(PORT) of 127.0.0.1 is taken; for another one: make run PORT=$(shell expr $(PORT) + 1)))\
	echo 'To talk to it: telnet 127.0.0.1 $(PORT). Ctrl-C ends it.' && exec '$(PROGRAM)' -l 127.0.0.1 -p $(PORT) $(ARGS)

static: ## build one static program: with musl if rustup has its target, else with glibc
	@if [ -n '$(HAS_MUSL)' ]; then \
	    target='$(MUSL)'; \
	    echo "building with musl ($$target)"; \
	    $(CARGO) build --release $(CARGOFLAGS) --target "$$target" || exit; \
	else \
	    target='$(HOST)'; \
	    echo "building with static glibc ($$target): musl is not here; rustup target add $(MUSL) brings it"; \
	    RUSTFLAGS="$$RUSTFLAGS -C target-feature=+crt-static" \
	        $(CARGO) build --release $(CARGOFLAGS) --target "$$target" || exit; \
	    echo 'with glibc, -u USER and host names in -l need the same glibc where it runs; with musl they do not'; \
	fi; \
	program="$(TARGET_DIR)/$$target/release/beanpole"; \
	if command -v file >/dev/null; then file "$$program"; fi; \
	if ldd "$$program" 2>&1 | grep -v -e 'statically linked' -e 'not a dynamic' -e 'Not a valid dynamic'; then \
	    echo "$$program is not static" >&2; exit 1; \
	fi; \
	ls -l "$$program"; \
	echo "it is static; to install it: make install PROGRAM=$$program"

test: ## run every test that needs nothing but the Rust toolchain
	$(CARGO) test $(CARGOFLAGS)

lint: ## look for bad form: rustfmt, clippy, rustdoc, and mandoc on the man pages
	$(CARGO) fmt --check
	$(CARGO) clippy $(CARGOFLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps $(CARGOFLAGS)
	@if command -v mandoc >/dev/null; then \
	    echo 'mandoc -Tlint -W warning $(MANPAGES)' && mandoc -Tlint -W warning $(MANPAGES); \
	else \
	    echo 'the man pages were not checked: mandoc is missing (Debian: apt-get install mandoc)'; \
	fi

check: test lint ## test and lint

compat: build oracle ## hold it against the original beanstalkd and gearmand and real clients; brings in what is missing if root
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(ORACLE)'
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(GEARMAN_ORACLE)'
	tests/compat/run '$(PROGRAM)'
	tests/compat/workq '$(PROGRAM)'
	tests/compat/gearman-suites '$(PROGRAM)'
	$(if $(GEARMAND_INIT),tests/compat/gearmand-init '$(PROGRAM)' '$(GEARMAND_INIT)')

crash: ## kill it under load, and cut the power of a simulated disk, again and again; takes minutes
	BEANPOLE_KILLS=170 $(CARGO) test --release $(CARGOFLAGS) --test durability kill -- --nocapture
	BEANPOLE_WILD=2000 $(CARGO) test --release $(CARGOFLAGS) --test gearman anything
	BEANPOLE_CRASHES=100000 $(CARGO) test --release $(CARGOFLAGS) --test crash -- --nocapture

cluster: build $(if $(ETCD),,fetch-etcd) ## lose parts of a shared queue on three etcd servers; takes minutes; ROWS=1,4 ROUNDS=20
	tests/cluster/run '$(PROGRAM)' --rows '$(ROWS)' --rounds '$(ROUNDS)' --etcd '$(ETCD)'

powercut: build ## cut the power under it at thousands of moments; takes minutes; SEED=1000 tries others, TRACE= and CUT= one again
	$(CARGO) test $(CARGOFLAGS) --test powercut -- '--program=$(PROGRAM)' '--seed=$(SEED)' '--restarts=$(RESTARTS)' \
	    '--also=$(ALSO)' '--trace=$(TRACE)' '--cut=$(CUT)'

# Debian's packages are unpacked rather than installed, since they would start their daemons. What gearmand needs beside them
# are libraries, which are installed.
FETCHED = target/compat/beanstalkd
ORACLE = $(or $(BEANSTALKD),$(shell ls /usr/bin/beanstalkd $(FETCHED)/usr/bin/beanstalkd 2>/dev/null | head -n 1))
GEARMAN_FETCHED = target/compat/gearmand
GEARMAN_ORACLE = $(or $(GEARMAND),$(shell ls /usr/sbin/gearmand $(GEARMAN_FETCHED)/usr/sbin/gearmand 2>/dev/null | head -n 1))
GEARMAND_INIT = $(shell ls $(GEARMAN_FETCHED)/etc/init.d/gearman-job-server /etc/init.d/gearman-job-server 2>/dev/null | head -n 1)
GEARMAN_LIBRARIES = apt-cache depends gearman-job-server | awk '/^ *Depends: lib/ {print $$2}'
ETCD_FETCHED = target/compat/etcd
ETCD = $(shell ls /usr/bin/etcd $(ETCD_FETCHED)/usr/bin/etcd 2>/dev/null | head -n 1)
.PHONY: oracle may-fetch fetch-beanstalkd fetch-gearmand fetch-etcd
oracle: $(if $(ORACLE),,fetch-beanstalkd) $(if $(GEARMAN_ORACLE),,fetch-gearmand)
may-fetch:
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo 'an original is missing (Debian: apt-get install beanstalkd gearman-job-server);' \
	        'or make compat BEANSTALKD=/path/to/it GEARMAND=/path/to/it' >&2; \
	    exit 1; \
	fi
fetch-etcd: may-fetch
	@echo 'fetching the Debian package etcd-server into $(ETCD_FETCHED)'; \
	rm -rf $(ETCD_FETCHED) && mkdir -p $(ETCD_FETCHED) && cd $(ETCD_FETCHED) && \
	{ apt-get update && apt-get download etcd-server && dpkg -x etcd-server_*.deb .; } >fetch.log 2>&1 || \
	{ cat fetch.log >&2; exit 1; }
fetch-beanstalkd: may-fetch
	@echo 'fetching the Debian package beanstalkd into $(FETCHED)'; \
	rm -rf $(FETCHED) && mkdir -p $(FETCHED) && cd $(FETCHED) && \
	{ apt-get update && apt-get download beanstalkd && dpkg -x beanstalkd_*.deb .; } >fetch.log 2>&1 || \
	{ cat fetch.log >&2; exit 1; }
fetch-gearmand: may-fetch
	@echo 'fetching the Debian package gearman-job-server into $(GEARMAN_FETCHED), and installing the libraries it needs'; \
	rm -rf $(GEARMAN_FETCHED) && mkdir -p $(GEARMAN_FETCHED) && cd $(GEARMAN_FETCHED) && \
	{ apt-get update && apt-get download gearman-job-server && dpkg -x gearman-job-server_*.deb . && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$($(GEARMAN_LIBRARIES)); } >fetch.log 2>&1 || \
	{ cat fetch.log >&2; exit 1; }

hostile: build $(if $(ORACLE),,fetch-beanstalkd) ## attack it, and beanstalkd for comparison; ROW=T3 for one attack, LIMIT_MS=10 judges times too
	$(CARGO) test $(CARGOFLAGS) --test attacks -- '--program=$(PROGRAM)' '--peer=$(ORACLE)' \
	    $(if $(LIMIT_MS),--limit-ms=$(LIMIT_MS)) $(ROW)

fmt: ## bring the code into its form
	$(CARGO) fmt

bench: ## measure, against beanstalkd and gearmand if they are there; ARGS=--pin stays on one CPU, ARGS=--help tells more
	$(CARGO) bench $(CARGOFLAGS) --bench load -- $(ARGS)
	@$(if $(filter-out $(SHARED),$(ARGS)),,$(MAKE) --no-print-directory bench-doors)

# The same through the other doors, unless ARGS ask for something that only the first benchmark knows.
SHARED = --pin --quick --runs=%
.PHONY: bench-doors
bench-doors:
	@$(if $(RIVAL),GEARMAND='$(RIVAL)' $(CARGO) bench $(CARGOFLAGS) --bench gearman -- $(ARGS),\
	echo 'Gearman was not measured: gearmand is missing (Debian: apt-get install gearman-job-server), or GEARMAND=/path/to/it')
	@$(CARGO) bench $(CARGOFLAGS) --bench workq -- $(ARGS)

# What Gearman is measured against; it may be unpacked rather than installed, for the same reason as above.
RIVAL = $(or $(GEARMAND),$(shell ls /usr/sbin/gearmand target/compat/gearmand/usr/sbin/gearmand 2>/dev/null | head -n 1))

bench-quick: ## the same roughly, in a minute at most
	$(CARGO) bench $(CARGOFLAGS) --bench load -- --quick $(ARGS)

install: ## install what `make` built; compiles nothing; GEARMAND=1 adds a link that takes gearmand's place
	@if [ ! -x '$(PROGRAM)' ]; then \
	    echo 'nothing to install: $(PROGRAM) is not there; `make` builds it (not as root)' >&2; exit 1; \
	fi
	$(INSTALL) -d '$(DESTDIR)$(BINDIR)'
	$(INSTALL) -m 755 '$(PROGRAM)' '$(DESTDIR)$(BINDIR)/beanpole'
	$(if $(GEARMAND),$(INSTALL) -d '$(DESTDIR)$(SBINDIR)' && ln -sf '$(BINDIR)/beanpole' '$(DESTDIR)$(SBINDIR)/gearmand')
	$(foreach page,$(MANPAGES),$(INSTALL) -d '$(DESTDIR)$(call section,$(page))'$(newline)\
	$(INSTALL) -m 644 $(page) '$(DESTDIR)$(call section,$(page))'$(newline))
	$(if $(SYSTEMDUNITDIR),$(INSTALL) -d '$(DESTDIR)$(SYSTEMDUNITDIR)')
	$(if $(SYSTEMDUNITDIR),$(foreach unit,$(UNITS),sed 's|@BINDIR@|$(BINDIR)|' pkg/systemd/$(unit) \
	    >'$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit)'$(newline)chmod 644 '$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit)'$(newline)))

uninstall: ## remove what install put there; takes the same variables
	rm -f '$(DESTDIR)$(BINDIR)/beanpole'
	@if [ "$$(readlink '$(DESTDIR)$(SBINDIR)/gearmand')" = '$(BINDIR)/beanpole' ]; then \
	    rm -f '$(DESTDIR)$(SBINDIR)/gearmand'; \
	fi
	$(foreach page,$(MANPAGES),rm -f '$(DESTDIR)$(call section,$(page))/$(notdir $(page))'$(newline))
	$(if $(SYSTEMDUNITDIR),$(foreach unit,$(UNITS),rm -f '$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit)'$(newline)))

# The folder of a man page, by the digit at its end.
section = $(MANDIR)/man$(patsubst .%,%,$(suffix $(1)))
define newline


endef

DIST = beanpole-$(VERSION)

dist: ## make a source tarball of the last commit, with its checksum
	@mkdir -p '$(TARGET_DIR)/dist'
	@grep -q '^## \[$(VERSION)\]\|^## \[Unreleased\]' CHANGELOG.md || { echo 'CHANGELOG.md has no $(VERSION)' >&2; exit 1; }
	@git diff --quiet HEAD -- || echo 'there are changes that are not committed, and not in the tarball'
	git archive --format=tar --prefix=$(DIST)/ -o '$(TARGET_DIR)/dist/$(DIST).tar' HEAD
	@for file in Cargo.lock LICENSE Makefile README.md src/main.rs man/beanpole.8 man/beanpole-binlog.5 man/beanpole-gearman.7; do \
	    tar -tf '$(TARGET_DIR)/dist/$(DIST).tar' "$(DIST)/$$file" >/dev/null || exit; \
	done
	gzip -9nf '$(TARGET_DIR)/dist/$(DIST).tar'
	cd '$(TARGET_DIR)/dist' && sha256sum $(DIST).tar.gz >$(DIST).tar.gz.sha256 && sha256sum -c $(DIST).tar.gz.sha256
	@ls -l '$(TARGET_DIR)/dist/$(DIST).tar.gz'

clean: ## remove everything that was built
	$(CARGO) clean

help: ## list these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
