# beanpole: `make help` lists the words. Those for packages are in pkg/packages.mk, those for long tests in pkg/tests.mk.
#
# Needs GNU make, a POSIX shell and a Rust toolchain. Variables, given as `make WORD NAME=VALUE`:
#
#   PREFIX, BINDIR, MANDIR   where `install` puts things             DESTDIR         a folder to put in front, for packages
#   SYSTEMDUNITDIR           where systemd units go, with the user that they need (SYSUSERSDIR) and their settings
#                            (DEFAULTSDIR); none go anywhere if it is empty
#   SBINDIR                  where `install GEARMAND=1` puts the link that has the program take the place of gearmand
#   CARGO, CARGOFLAGS        the cargo to use and its flags          CARGO_TARGET_DIR, CARGO_BUILD_TARGET   as cargo has them
#   PORT                     the port of `run`                       ARGS            more arguments, for `run` and `bench`
#   BEANSTALKD, GEARMAND     the original daemons, for `compat`      PROGRAM         what `install` installs, `hostile` attacks
#   COMPLETER                a program that runs here and prints the completions, if PROGRAM is for another processor
#   TLS=1                    builds, and tests, the program with TLS
#   SMALL=1                  builds a program of three quarters of the size, which takes more processor time

.SUFFIXES:

CARGO ?= cargo
RUSTC ?= rustc
CARGOFLAGS ?= --locked

# With TLS=1, what is built and tested speaks TLS.
TLS =
override CARGOFLAGS += $(if $(TLS),--features tls)

# With SMALL=1, it is optimised for size: benches/RESULTS.md tells what that costs.
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

# Not taken from the environment, where these names may mean something else.
PORT =
HTTP = 11380
ARGS =

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
NEEDED_RUST := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
MANPAGES := $(wildcard man/*.[1-8])
UNITS := beanpole.service beanpole.socket beanpole@.service

# beanpole@NAME is another queue beside beanpole.service, with the same restrictions and files of its own.
INSTANCE = sed -e 's|^Description=.*|Description=Work queue %i that speaks the beanstalk protocol|' \
	-e '/^\# The package that replaces/,/^Condition/d' -e 's|-p 11300 -b /var/lib/beanpole|-p %i -b /var/lib/beanpole-%i|' \
	-e 's|^EnvironmentFile=.*|&@%i|' -e 's/^\(State\|Runtime\)Directory=.*/&-%i/' pkg/systemd/beanpole.service

# A word for the shell, whatever is in it.
q = '$(subst ','\'',$(1))'

# Where cargo builds. It is asked once, when first needed; `install` may well run where there is no cargo.
TARGET_DIR = $(eval TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CARGO_BUILD_TARGET_DIR),$(asked_cargo),target))$(TARGET_DIR)
asked_cargo = $(subst $(CURDIR)/,,$(shell $(CARGO) metadata --no-deps --offline --format-version 1 2>/dev/null \
	| sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'))

PROGRAM = $(TARGET_DIR)/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)release/beanpole
COMPLETER = $(PROGRAM)

# The triple that this machine builds for, and the same with musl for a C library.
HOST = $(shell $(RUSTC) -vV | sed -n 's/^host: //p')
MUSL = $(subst -gnu,-musl,$(HOST))
HAS_MUSL = $(wildcard $(shell $(RUSTC) --print target-libdir --target $(MUSL) 2>/dev/null)/libstd-*.rlib)
STATIC_TARGET = $(if $(HAS_MUSL),$(MUSL),$(HOST))
STATIC_PROGRAM = $(TARGET_DIR)/$(STATIC_TARGET)/release/beanpole

# No folder of this machine is in the program: it is the same wherever it is built.
CARGO_HOME ?= $(HOME)/.cargo
REMAP = --remap-path-prefix=$(CURDIR)=. --remap-path-prefix=$(CARGO_HOME)/registry/src=crates

# Binds the address and gives it back without serving, since the second place can never be listened on.
RUN_PORT = $(or $(PORT),11300)
TAKEN = $(findstring in use,$(shell $(call q,$(PROGRAM)) -l 127.0.0.1:$(RUN_PORT) -l unix:/ 2>&1))
HTTP_TAKEN = $(findstring in use,$(shell $(call q,$(PROGRAM)) -l 127.0.0.1:$(HTTP) -l unix:/ 2>&1))
# Where it listens is said here unless the port is free to choose, or ARGS may say otherwise.
comma = ,
SAID = $(if $(ARGS)$(filter 0,$(RUN_PORT)),HOST PORT$(comma) as the next line names them,127.0.0.1 $(RUN_PORT))

# What `run` and `demo` start, and what they say of it. Behind the page, which serves this machine alone, jobs can be changed.
FREE = $(if $(TAKEN),$(error port $(RUN_PORT) of 127.0.0.1 is taken; for another one: make $@ PORT=$(shell expr $(RUN_PORT) + 1)))\
$(if $(HTTP_TAKEN),$(error port $(HTTP) of 127.0.0.1 is taken; for another one: make $@ HTTP=$(shell expr $(HTTP) + 1)))
SERVE = $(call q,$(PROGRAM)) -l 127.0.0.1 -p $(RUN_PORT) --http=127.0.0.1:$(HTTP) --http-admin $(ARGS)
define TELL
echo 'The queue: nc -C $(SAID) (or telnet), or any client of beanstalkd'
echo 'The page:  http://127.0.0.1:$(HTTP)/ (and /metrics for Prometheus)'
endef

.PHONY: all toolchain build run demo static static-program test lint check fmt install uninstall clean help

all: build ## build (what plain `make` does)

toolchain:
	@pkg/toolchain $(call q,$(CARGO)) $(NEEDED_RUST)

build: toolchain ## build the program, optimised
	$(CARGO) build --release $(CARGOFLAGS)

run: build ## build, then run a queue on 127.0.0.1:11300 and its page on 127.0.0.1:11380 until Ctrl-C; PORT=, HTTP= take others
	@$(FREE)$(TELL)
	@echo 'Next:      put a job by either, or see jobs move: make demo. Ctrl-C ends it.'
	@exec $(SERVE)

demo: build ## the same, with a producer and some workers, so that something moves
	$(CARGO) build --release $(CARGOFLAGS) --example demo
	@$(FREE)$(TELL)
	@echo 'Next:      open the page, and kick what is buried. Ctrl-C ends it all.'
	@trap 'exit 0' INT TERM; $(SERVE) & server=$$!; sleep 1; \
	    $(call q,$(dir $(PROGRAM))examples/demo) 127.0.0.1:$(RUN_PORT) & demo=$$!; \
	    trap 'kill $$demo $$server 2>/dev/null; wait; exit 0' INT TERM; wait $$server; kill $$demo 2>/dev/null; wait

static: toolchain ## build one static program: with musl if rustup has its target, else with glibc
	@$(if $(HAS_MUSL),,echo 'building with static glibc: musl is not here; rustup target add $(MUSL) brings it'; \
	    echo 'with glibc, -u USER and host names in -l need the same glibc where it runs; with musl they do not';) \
	RUSTFLAGS="$$RUSTFLAGS -C target-feature=+crt-static "$(call q,$(REMAP)) \
	    $(CARGO) build --release $(CARGOFLAGS) --target $(STATIC_TARGET)
	@if ldd $(call q,$(STATIC_PROGRAM)) 2>&1 | grep -v -e 'statically linked' -e 'not a dynamic' -e 'Not a valid dynamic'; then \
	    echo 'it is not static' >&2; exit 1; \
	fi
	@ls -l $(call q,$(STATIC_PROGRAM))
	@echo 'it is static; to install it: make install PROGRAM=$(STATIC_PROGRAM)'

static-program:
	@echo $(call q,$(STATIC_PROGRAM))

# Most tests that take long wait, rather than compute.
TEST_THREADS = $(or $(RUST_TEST_THREADS),$(shell expr 6 \* "$$(getconf _NPROCESSORS_ONLN)"))
test: toolchain ## run every test that needs nothing but the Rust toolchain
	RUST_TEST_THREADS='$(TEST_THREADS)' $(CARGO) test $(CARGOFLAGS) --no-fail-fast

lint: ## look for bad form: rustfmt, clippy, rustdoc, mandoc on the man pages, shellcheck on the scripts
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
SCRIPTS := pkg/toolchain pkg/cross pkg/dist pkg/licences pkg/musl/link-static pkg/sysv/beanpole pkg/buildroot/S60beanpole \
	pkg/alpine/beanpole.pre-install $(filter-out pkg/test/prometheus,$(wildcard pkg/test/*)) $(wildcard examples/shell/*.sh) tests/compat/examples

check: test lint ## test and lint

fmt: ## bring the code into its form
	$(CARGO) fmt

# The folder of a man page, by the digit at its end; the files of completions, by shell.
section = $(MANDIR)/man$(patsubst .%,%,$(suffix $(1)))
COMPLETION_bash = $(PREFIX)/share/bash-completion/completions/beanpole
COMPLETION_zsh = $(PREFIX)/share/zsh/site-functions/_beanpole
COMPLETION_fish = $(PREFIX)/share/fish/vendor_completions.d/beanpole.fish
SHELLS := bash zsh fish
# `put MODE,FILE,PLACE` installs a file there.
put = $(INSTALL) -d $(call q,$(DESTDIR)$(patsubst %/,%,$(dir $(3)))) && \
	$(INSTALL) -m $(1) $(call q,$(2)) $(call q,$(DESTDIR)$(3))
define newline


endef

install: ## install what `make` built; compiles nothing; GEARMAND=1 adds a link that takes gearmand's place
	@if [ ! -x $(call q,$(PROGRAM)) ]; then \
	    echo 'nothing to install: '$(call q,$(PROGRAM))' is not there; `make` builds it (not as root)' >&2; exit 1; \
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
	$(if $(SYSTEMDUNITDIR),@echo 'to run it: systemd-sysusers && systemctl daemon-reload && systemctl enable --now beanpole')

uninstall: ## remove what install put there; takes the same variables; what was changed since in /etc stays
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

clean: ## remove everything that was built
	$(CARGO) clean

help: ## list these words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

include pkg/packages.mk pkg/tests.mk
