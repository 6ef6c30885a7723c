# The targets for development and installation. `make help` lists all targets. pkg/packages.mk contains the targets for
# packages, and pkg/tests.mk contains the targets for long tests.
#
# Requires GNU make, a POSIX shell and a Rust toolchain. Variables, set with `make TARGET NAME=VALUE`:
#
#   PREFIX, BINDIR, MANDIR   installation directories
#   DESTDIR                  directory that is prepended to all installation paths, for packages
#   SYSTEMDUNITDIR           directory for systemd units. If it is empty, `install` installs no units, no sysusers.d file
#                            (SYSUSERSDIR) and no default settings (DEFAULTSDIR)
#   SBINDIR                  directory for the link `gearmand`, which `install GEARMAND=1` creates
#   CARGO, CARGOFLAGS        the cargo command and its flags
#   CARGO_TARGET_DIR, CARGO_BUILD_TARGET   as for cargo
#   PORT, HTTP               ports of `run` and `demo`
#   ARGS                     additional arguments for `run` and `bench`
#   BEANSTALKD, GEARMAND     the original daemons, for `compat`
#   PROGRAM                  the program that `install` installs and `hostile` attacks
#   COMPLETER                a program for this machine that prints the completions, if PROGRAM is for another processor
#   TLS=1                    build and test the program with TLS
#   STATIC=1                 test the static program
#   SMALL=1                  build a program that is a third smaller and uses more CPU time

.SUFFIXES:

CARGO ?= cargo
RUSTC ?= rustc
CARGOFLAGS ?= --locked

# TLS=1 enables the cargo feature for builds and tests.
TLS =
override CARGOFLAGS += $(if $(TLS),--features tls)

# SMALL=1 optimizes for size. benches/RESULTS.md shows the cost.
SMALL =
ifneq ($(SMALL),)
export CARGO_PROFILE_RELEASE_OPT_LEVEL = s
endif

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
MANDIR ?= $(PREFIX)/share/man
SYSTEMDUNITDIR ?=
SYSUSERSDIR ?= /etc/sysusers.d
DEFAULTSDIR ?= /etc/default
INSTALL ?= install

# These names are too common to be read from the environment.
PORT =
HTTP = 11380
ARGS =

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
NEEDED_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
MANPAGES := $(wildcard man/*.[1-8])
UNITS := beanpole.service beanpole.socket beanpole@.service

# Generates beanpole@.service, the template for additional queues, from beanpole.service. An instance has the same
# restrictions, but its own directories and settings.
INSTANCE = sed -e 's|^Description=.*|Description=Work queue %i that speaks the beanstalk protocol|' \
	-e '/^\# The package that replaces/,/^Condition/d' -e 's|-p 11300 -b /var/lib/beanpole|-p %i -b /var/lib/beanpole-%i|' \
	-e 's|^EnvironmentFile=.*|&@%i|' -e 's/^\(State\|Runtime\)Directory=.*/&-%i/' pkg/systemd/beanpole.service

# Quotes a string for the shell.
q = '$(subst ','\'',$(1))'

# Cargo's target directory. Cargo is run once, at the first use of this variable, because `install` must also work
# without cargo.
TARGET_DIR = $(eval TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CARGO_BUILD_TARGET_DIR),$(asked_cargo),target))$(TARGET_DIR)
asked_cargo = $(subst $(CURDIR)/,,$(shell $(CARGO) metadata --no-deps --offline --format-version 1 2>/dev/null \
	| sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'))

PROGRAM = $(TARGET_DIR)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release/beanpole
COMPLETER = $(PROGRAM)

# The target triple of this machine, and the same triple with musl.
HOST = $(shell $(RUSTC) -vV | sed -n 's/^host: //p')
MUSL = $(subst -gnu,-musl,$(HOST))
HAS_MUSL = $(wildcard $(shell $(RUSTC) --print target-libdir --target $(MUSL) 2>/dev/null)/libstd-*.rlib)
STATIC_TARGET = $(if $(HAS_MUSL),$(MUSL),$(HOST))
# The C compiler for the TLS library, which needs no C library and therefore no musl-gcc.
STATIC_CC = CC_$(subst -,_,$(STATIC_TARGET))=$(call q,$(CC))
STATIC_PROGRAM = $(TARGET_DIR)/$(STATIC_TARGET)/release/beanpole

# Removes the paths of this machine from the program, so that builds are reproducible.
CARGO_HOME ?= $(HOME)/.cargo
REMAP = --remap-path-prefix=$(CURDIR)=. --remap-path-prefix=$(CARGO_HOME)/registry/src=crates

# Checks whether the port is in use. The program binds the port first, and then exits in any case, because it can never
# bind `unix:/`.
RUN_PORT = $(or $(PORT),11300)
TAKEN = $(findstring in use,$(shell $(call q,$(PROGRAM)) -l 127.0.0.1:$(RUN_PORT) -l unix:/ 2>&1))
HTTP_TAKEN = $(findstring in use,$(shell $(call q,$(PROGRAM)) -l 127.0.0.1:$(HTTP) -l unix:/ 2>&1))
# The address in the printed message. The address is unknown if the port is 0 or if ARGS can contain another address.
comma = ,
SAID = $(if $(ARGS)$(filter 0,$(RUN_PORT)),HOST PORT$(comma) as logged below,127.0.0.1 $(RUN_PORT))

# The server that `run` and `demo` start, and the message that they print. The web page permits changes, because
# only local clients can connect.
FREE = $(if $(TAKEN),$(error port $(RUN_PORT) on 127.0.0.1 is in use; try: make $@ PORT=$(shell expr $(RUN_PORT) + 1)))\
$(if $(HTTP_TAKEN),$(error port $(HTTP) on 127.0.0.1 is in use; try: make $@ HTTP=$(shell expr $(HTTP) + 1)))
SERVE = $(call q,$(PROGRAM)) -l 127.0.0.1 -p $(RUN_PORT) --http=127.0.0.1:$(HTTP) --http-admin $(ARGS)
define TELL
echo 'Queue:    nc -C $(SAID) (or telnet), or any beanstalkd client'
echo 'Web page: http://127.0.0.1:$(HTTP)/ (and /metrics for Prometheus)'
endef

.PHONY: all toolchain build run demo static static-program test test-lib test-doc test-list lint check fmt install uninstall clean help

all: build ## same as build; the default

toolchain:
	@pkg/toolchain $(call q,$(CARGO)) $(NEEDED_RUST)

build: toolchain ## build the optimized program
	$(CARGO) build --release $(CARGOFLAGS)

run: build ## run a queue on 127.0.0.1:11300, with a web page on 127.0.0.1:11380; PORT= and HTTP= set other ports
	@$(FREE)$(TELL)
	@echo 'Next:     put a job through either of them, or run `make demo` for sample traffic. Ctrl-C stops the queue.'
	@exec $(SERVE)

demo: build ## like run, with a producer and workers that generate traffic
	$(CARGO) build --release $(CARGOFLAGS) --example demo
	@$(FREE)$(TELL)
	@echo 'Next:     open the web page and kick buried jobs. Ctrl-C stops all processes.'
	@trap 'exit 0' INT TERM; $(SERVE) & server=$$!; sleep 1; \
	    $(call q,$(dir $(PROGRAM))examples/demo) 127.0.0.1:$(RUN_PORT) & demo=$$!; \
	    trap 'kill $$demo $$server 2>/dev/null; wait; exit 0' INT TERM; wait $$server; kill $$demo 2>/dev/null; wait

static: toolchain ## build a static program: with musl if rustup has its target, otherwise with glibc
	@$(if $(HAS_MUSL),,echo 'building with static glibc, because the musl target is missing: rustup target add $(MUSL)';) \
	RUSTFLAGS="$$RUSTFLAGS -C target-feature=+crt-static "$(call q,$(REMAP)) $(STATIC_CC) \
	    $(CARGO) build --release $(CARGOFLAGS) --target $(STATIC_TARGET)
	@if ldd $(call q,$(STATIC_PROGRAM)) 2>&1 | grep -v -e 'statically linked' -e 'not a dynamic' -e 'Not a valid dynamic'; then \
	    echo 'the program is not static' >&2; exit 1; \
	fi
	@ls -l $(call q,$(STATIC_PROGRAM))
	@echo 'the program is static; to install it: make install PROGRAM=$(STATIC_PROGRAM)'

static-program:
	@echo $(call q,$(STATIC_PROGRAM))

# The test programs in tests/, excluding those that Cargo.toml excludes from `cargo test`. With STATIC=1, only the test
# programs that start the program. Four of them run in parallel. Each uses more threads than processors, because most
# long tests wait most of the time. The longest ones begin first, so that none of them runs alone at the end.
STATIC =
EXCLUDED = oracle attacks powercut $(if $(TLS),,tls)
ALL_TESTS = $(if $(STATIC),$(shell grep -l '^mod daemon;' tests/*.rs),$(wildcard tests/*.rs))
LONGEST = hostile examples judge ctl lib
INCLUDED = $(if $(STATIC),,lib doc) $(filter-out $(EXCLUDED),$(basename $(notdir $(ALL_TESTS))))
TESTS = $(filter $(INCLUDED),$(LONGEST)) $(filter-out $(LONGEST),$(INCLUDED))
TEST_THREADS = $(or $(RUST_TEST_THREADS),$(shell expr 6 \* "$$(getconf _NPROCESSORS_ONLN)"))
test: toolchain $(if $(STATIC),static) ## run all tests that need only the Rust toolchain; TLS=1 adds the tests of TLS, STATIC=1 tests the static program
	$(CARGO) test $(CARGOFLAGS) --no-run
	@$(if $(STATIC),BEANPOLE_PROGRAM=$(call q,$(abspath $(STATIC_PROGRAM))) )RUST_TEST_THREADS='$(TEST_THREADS)' $(MAKE) --no-print-directory -k -j4 -Otarget $(TESTS:%=test-%)

test-list:
	@echo $(TESTS)
test-lib:
	@$(CARGO) test $(CARGOFLAGS) --lib --bins --no-fail-fast
test-doc:
	@$(CARGO) test $(CARGOFLAGS) --doc
test-%:
	@$(CARGO) test $(CARGOFLAGS) --test $*

lint: ## check style: rustfmt, clippy, rustdoc, mandoc for man pages, shellcheck for scripts
	$(CARGO) fmt --check
	$(CARGO) clippy $(CARGOFLAGS) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps $(CARGOFLAGS)
	@if command -v mandoc >/dev/null; then \
	    echo 'mandoc -Tlint -W warning $(MANPAGES)' && mandoc -Tlint -W warning $(MANPAGES); \
	else \
	    echo 'the man pages were not checked: mandoc is missing (Debian: apt-get install mandoc)'; \
	fi
	@if command -v shellcheck >/dev/null; then \
	    echo 'shellcheck $(SCRIPTS)' && shellcheck -S warning -e SC1090,SC1091,SC2016 $(SCRIPTS); \
	else \
	    echo 'the scripts were not checked: shellcheck is missing (Debian: apt-get install shellcheck)'; \
	fi
SCRIPTS := pkg/toolchain pkg/cross pkg/dist pkg/licenses pkg/musl/link-static pkg/sysv/beanpole pkg/buildroot/S60beanpole \
	pkg/alpine/beanpole.pre-install $(filter-out pkg/test/prometheus,$(wildcard pkg/test/*)) $(wildcard examples/shell/*.sh) tests/compat/examples \
	tests/compat/go_clients tests/judge/finds tests/judge/plant

check: test lint ## run test and lint

fmt: ## format the code
	$(CARGO) fmt

# The directory of a man page, from the section in its name. COMPLETION_* are the completion files of the shells.
section = $(MANDIR)/man$(patsubst .%,%,$(suffix $(1)))
COMPLETION_bash = $(PREFIX)/share/bash-completion/completions/beanpole
COMPLETION_zsh = $(PREFIX)/share/zsh/site-functions/_beanpole
COMPLETION_fish = $(PREFIX)/share/fish/vendor_completions.d/beanpole.fish
SHELLS := bash zsh fish
# `$(call put,MODE,FILE,PATH)` installs FILE as PATH.
put = $(INSTALL) -d $(call q,$(DESTDIR)$(patsubst %/,%,$(dir $(3)))) && \
	$(INSTALL) -m $(1) $(call q,$(2)) $(call q,$(DESTDIR)$(3))
define newline


endef

install: ## install the program without compiling it; GEARMAND=1 also installs a link named gearmand
	@if [ ! -x $(call q,$(PROGRAM)) ]; then \
	    echo 'nothing to install: '$(call q,$(PROGRAM))' does not exist; run `make` first, not as root' >&2; exit 1; \
	fi
	$(call put,755,$(PROGRAM),$(BINDIR)/beanpole)
	$(if $(GEARMAND),$(INSTALL) -d $(call q,$(DESTDIR)$(SBINDIR)) && \
	    ln -sf $(call q,$(BINDIR)/beanpole) $(call q,$(DESTDIR)$(SBINDIR)/gearmand))
	$(foreach page,$(MANPAGES),$(call put,644,$(page),$(call section,$(page))/$(notdir $(page)))$(newline))
	@for shell in $(SHELLS); do \
	    case $$shell in \
	        bash) place=$(call q,$(DESTDIR)$(COMPLETION_bash)) ;; \
	        zsh) place=$(call q,$(DESTDIR)$(COMPLETION_zsh)) ;; \
	        fish) place=$(call q,$(DESTDIR)$(COMPLETION_fish)) ;; \
	    esac; \
	    text=$$($(call q,$(abspath $(COMPLETER))) completion $$shell 2>/dev/null) || continue; \
	    $(INSTALL) -d "$${place%/*}" && printf '%s\n' "$$text" >"$$place" && chmod 644 "$$place" || exit; \
	    echo "completion for $$shell: $$place"; \
	done
	$(if $(SYSTEMDUNITDIR),$(call put,644,pkg/sysusers.d/beanpole.conf,$(SYSUSERSDIR)/beanpole.conf))
	$(if $(SYSTEMDUNITDIR),$(INSTALL) -d $(call q,$(DESTDIR)$(DEFAULTSDIR)) && \
	    { [ -e $(call q,$(DESTDIR)$(DEFAULTSDIR)/beanpole) ] || \
	    $(INSTALL) -m 644 pkg/beanpole.default $(call q,$(DESTDIR)$(DEFAULTSDIR)/beanpole); })
	$(if $(SYSTEMDUNITDIR),$(foreach unit,$(UNITS),$(if $(findstring @,$(unit)),@echo $(call q,$(SYSTEMDUNITDIR)/$(unit)) && \
	    $(INSTANCE) >$(call q,$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit)) && chmod 644 $(call q,$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit)),\
	    $(call put,644,pkg/systemd/$(unit),$(SYSTEMDUNITDIR)/$(unit)))$(newline)\
	sed -i 's|@BINDIR@|$(BINDIR)|' $(call q,$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit))$(newline)))
	$(if $(SYSTEMDUNITDIR),@echo 'to start it: systemd-sysusers && systemctl daemon-reload && systemctl enable --now beanpole')

uninstall: ## remove installed files, except changed settings; set the same variables as for install
	rm -f $(call q,$(DESTDIR)$(BINDIR)/beanpole)
	@if [ "$$(readlink $(call q,$(DESTDIR)$(SBINDIR)/gearmand))" = $(call q,$(BINDIR)/beanpole) ]; then \
	    rm -f $(call q,$(DESTDIR)$(SBINDIR)/gearmand); \
	fi
	$(foreach page,$(MANPAGES),rm -f $(call q,$(DESTDIR)$(call section,$(page))/$(notdir $(page)))$(newline))
	rm -f $(foreach shell,$(SHELLS),$(call q,$(DESTDIR)$(COMPLETION_$(shell))))
	$(if $(SYSTEMDUNITDIR),rm -f $(foreach unit,$(UNITS),$(call q,$(DESTDIR)$(SYSTEMDUNITDIR)/$(unit))) \
	    $(call q,$(DESTDIR)$(SYSUSERSDIR)/beanpole.conf))
	$(if $(SYSTEMDUNITDIR),@! cmp -s pkg/beanpole.default $(call q,$(DESTDIR)$(DEFAULTSDIR)/beanpole) || \
	    rm -f $(call q,$(DESTDIR)$(DEFAULTSDIR)/beanpole))

clean: ## remove all build results
	$(CARGO) clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

include pkg/packages.mk pkg/tests.mk
