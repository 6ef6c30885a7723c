# Words for tests and measurements that need more than the Rust toolchain, or minutes. Included by the Makefile.

#   BEANSTALKD, GEARMAND     the original daemons, for `compat`
#   ROWS, ROUNDS, LONG       of `cluster`: which faults (11 is etcd's quota, 16 a million schedules in memory, lost, wiped and
#                            restored the ends of etcd, slow a standby behind a slow network, tls an etcd with
#                            TLS), how often each, and whether they last as long as they should
#   COSTS, TAKEOVER, RESTART of `cluster`, instead of faults: what a put costs, how long a take-over lasts with 1000,100000 jobs,
#                            and how long the restart of a lone server with 200000 entries
#   SEED, RESTARTS, ALSO     of `powercut`: where chance begins, how much is tried, and which checks count that are switched off
#   KILLS, CRASHES           of `crash`: how often the program is killed with each kind of sync, and the power cut
#   SEED, STEPS, SECONDS     of `sim`: one seed, the steps of each, and for how long fresh seeds are played if none is given
#   SERVER, SEED, ROUNDS     of `judge`: the command to judge, where chance begins, and how many rounds are played; SECONDS
#                            bounds their time, and ARGS has further arguments (tests/judge/judge.py --help)
#   DEPTH                    of `worlds`                         MINUTES         of `soak`, 1 if it is not given
#   TARGET, SECONDS          of `fuzz`: what is fuzzed, one after the other, and for how long each
#   SCENE, SCHEDULES         of `threads`: one scene, and how many schedules are tried of each, twice
#   FILES, SHARD             of `mutants`: which files are changed, and which part of all changes is tried, as 3/40
#   TRACE, CUT               of `powercut`: one history, and one of its moments, again

SEED =
RESTARTS =
ROWS = 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,lost,wiped,restored,slow$(if $(TLS),$(comma)tls)
ROUNDS = 1
LONG =
COSTS =
TAKEOVER =
ALSO =
TRACE =
CUT =
STEPS =
SECONDS =
DEPTH =
KILLS =
CRASHES =
MINUTES =
FILES = src/engine/** src/binlog/** src/protocol/**
SHARD =

.PHONY: compat tls hostile crash cluster judge powercut sim worlds mutants tsan memory chaos soak bench results budget picture bench-quick bench-tls

compat: build oracle ## hold it against the original beanstalkd and gearmand and real clients; brings in what is missing if root
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(ORACLE)'
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(GEARMAN_ORACLE)'
	BEANSTALKD='$(abspath $(ORACLE))' $(CARGO) test $(CARGOFLAGS) --test ctl
	tests/compat/run '$(PROGRAM)'
	tests/compat/workq '$(PROGRAM)'
	CARGO='$(CARGO)' tests/compat/examples $(CARGOFLAGS)
	tests/compat/gearman-suites '$(PROGRAM)'
	$(if $(GEARMAND_INIT),tests/compat/gearmand-init '$(PROGRAM)' '$(GEARMAND_INIT)')

# The program that it leaves has TLS.
tls: ## test what TLS adds, with real clients over it; needs openssl
	$(MAKE) --no-print-directory build TLS=1
	$(CARGO) clippy --locked --features tls --all-targets -- -D warnings
	$(CARGO) test --locked --features tls --test tls --test access --test ctl
	COMPAT_ONLY=tls tests/compat/run '$(PROGRAM)'

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

# A test that need not be optimised as far as the program, which it starts as `make` built it.
STARTER = BEANPOLE_PROGRAM=$(call q,$(abspath $(PROGRAM))) $(CARGO) test --profile sim $(CARGOFLAGS)

crash: build ## kill it under load, and cut the power of a simulated disk, again and again; takes minutes; KILLS=60 CRASHES=30000 fewer
	BEANPOLE_KILLS='$(or $(KILLS),170)' $(STARTER) --test durability kill -- --nocapture
	BEANPOLE_WILD=2000 $(STARTER) --test gearman anything
	MIXTURES=10000 BEANPOLE_CRASHES='$(or $(CRASHES),100000)' $(STARTER) --test crash -- --nocapture

cluster: build $(if $(ETCD),,fetch-etcd) ## lose parts of a shared queue on three etcd servers; takes minutes; ROWS=1,4 ROUNDS=20, or COSTS=1
	$(if $(findstring 16,$(ROWS)),BEANPOLE_SCHEDULES=1000000 $(CARGO) test --profile sim $(CARGOFLAGS) --test cluster \
	    what_was_confirmed -- --nocapture)
	tests/cluster/run '$(PROGRAM)' --rows '$(ROWS)' --rounds '$(ROUNDS)' --etcd '$(ETCD)' \
	    $(if $(LONG),--long) $(if $(COSTS),--costs) $(if $(TAKEOVER),--takeover '$(TAKEOVER)') \
	    $(if $(RESTART),--restart '$(RESTART)')

powercut: build ## cut the power under it at thousands of moments; takes minutes; SEED=1000 tries others, TRACE= and CUT= one again
	$(CARGO) test $(CARGOFLAGS) --test powercut -- '--program=$(PROGRAM)' '--seed=$(SEED)' '--restarts=$(RESTARTS)' \
	    '--also=$(ALSO)' '--trace=$(TRACE)' '--cut=$(CUT)'

# Any server that speaks the beanstalk protocol: {port} and {dir} are replaced.
SERVER = $(abspath $(PROGRAM)) -l 127.0.0.1 -p {port} -b {dir} -f0
judge: $(if $(filter file,$(origin SERVER)),build) ## judge a server by its replies to a seeded load with faults; SERVER='command with {port} and {dir}'
	python3 tests/judge/judge.py $(call q,$(SERVER)) --seed '$(or $(SEED),1)' --seconds '$(or $(SECONDS),300)' \
	    --rounds '$(if $(filter command environment,$(firstword $(origin ROUNDS))),$(ROUNDS),10)' $(ARGS)

sim: ## play the whole server in simulated worlds; SEED=7 plays one again, STEPS=500 its length, SECONDS=300 the time for fresh ones
	SEED='$(SEED)' STEPS='$(STEPS)' SECONDS='$(SECONDS)' \
	    $(CARGO) test --profile sim $(CARGOFLAGS) --test sim as_asked -- --ignored --nocapture

worlds: ## try all that two clients can do with three jobs in two tubes, up to six calls; takes minutes; DEPTH=5 goes less deep
	BEANPOLE_DEPTH='$(or $(DEPTH),6)' $(CARGO) test --profile sim $(CARGOFLAGS) --lib small_world -- --nocapture

# Rust's sanitizers are the compiler's own, but only a nightly one lets them be used. What is new is kept in FUZZED, from where
# files that matter go to tests/fuzz/corpus.
FUZZED = $(TARGET_DIR)/fuzz
fuzz: ## fuzz with coverage (needs nightly Rust and cargo-fuzz); TARGET=log one target, SECONDS=600 for how long each
	@if ! $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then \
	    echo 'nightly Rust or cargo-fuzz is missing: rustup toolchain install nightly; cargo install cargo-fuzz' >&2; exit 1; \
	fi
	@set -e; for target in $(or $(TARGET),$(notdir $(wildcard tests/fuzz/corpus/*))); do \
	    mkdir -p '$(FUZZED)/'$$target; \
	    CARGO_TARGET_DIR='$(abspath $(FUZZED))' $(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz/cargo-fuzz -s none $$target \
	        '$(abspath $(FUZZED))/'$$target 'tests/fuzz/corpus/'$$target -- -max_total_time=$(or $(SECONDS),60) -max_len=2000 \
	        -timeout=20 -print_final_stats=1; \
	done

# What is changed, and what must notice, is in .cargo/mutants.toml. PROMISE names a promise of beanpole-promises(7).
PROMISE =
ENFORCING = $(if $(PROMISE),$(shell grep -rlE '^//! Promises:.* $(PROMISE)[,.]' src))
mutants: ## make small mistakes in the code, one by one, and see which no test notices (needs cargo-mutants); FILES='src/binlog/*', PROMISE=P12, SHARD=3/40
	@if ! $(CARGO) mutants --version >/dev/null 2>&1; then \
	    echo 'cargo-mutants is missing: cargo install --locked cargo-mutants' >&2; exit 1; \
	fi
	$(CARGO) mutants --output '$(abspath $(TARGET_DIR))' --sharding round-robin --cargo-arg=--locked $(foreach file,$(or $(ENFORCING),$(FILES)),--file '$(file)') \
	    $(if $(SHARD),--shard '$(SHARD)')

threads: ## try schedules of the server's threads on the real code (fetches shuttle); SCHEDULES=50000, SCENE=replies-in-order
	SCENE='$(SCENE)' SCHEDULES='$(SCHEDULES)' CARGO_TARGET_DIR='$(abspath $(TARGET_DIR))/threads' \
	    $(CARGO) run --release --locked --manifest-path tests/threads/Cargo.toml

# ThreadSanitizer must see the standard library as well, which is therefore built from its source: by nightly Rust, or by
# Debian's with the sanitizer and the linker of rustup's.
RUST_LIBRARY = lib/rustlib/src/rust/library/Cargo.toml
NIGHTLY_SOURCE = $(wildcard $(addsuffix /$(RUST_LIBRARY),$(shell $(RUSTC) +nightly --print sysroot 2>/dev/null)))
RUST_TARGET = $(shell $(RUSTC) --print target-libdir)
TSAN_RUNTIME = $(wildcard $(RUST_TARGET)/librustc-*_rt.tsan.a)
DEBIAN_SOURCE = $(and $(wildcard /usr/bin/cargo),$(wildcard /usr/$(RUST_LIBRARY)),$(TSAN_RUNTIME))
TSAN_LINK = -Zexternal-clangrt $(addprefix -Clink-arg=,-fuse-ld=lld -B$(RUST_TARGET)/../bin/gcc-ld \
	-Wl$(comma)--whole-archive$(comma)$(TSAN_RUNTIME)$(comma)--no-whole-archive$(comma)--no-as-needed -lm -lpthread)
TSAN_CARGO = $(if $(NIGHTLY_SOURCE),RUSTFLAGS='-Zsanitizer=thread' $(CARGO) +nightly,RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
	RUSTFLAGS='-Zsanitizer=thread $(TSAN_LINK)' /usr/bin/cargo)
TSAN_TEST = TSAN_OPTIONS=halt_on_error=1 CARGO_TARGET_DIR='$(abspath $(TARGET_DIR))/tsan' $(TSAN_CARGO) test --locked -Zbuild-std \
	--target $(HOST)
# What measures memory, of which the sanitizer takes much.
TSAN_MEASURED = tells_itself_very_much does_not_read what_very_many_are_told
tsan: ## look for data races in the server and the program with ThreadSanitizer (needs the source of Rust's standard library)
	@if [ -z '$(or $(NIGHTLY_SOURCE),$(DEBIAN_SOURCE))' ]; then \
	    echo 'the source of the standard library is missing: rustup toolchain install nightly --component rust-src' \
	        "(Debian, beside rustup's Rust: apt-get install rustc-web cargo-web rust-web-src)" >&2; exit 1; \
	fi
	$(TSAN_TEST) --lib server:: -- --skip as_many_are_dropped
	BEANPOLE_WILD=20 $(TSAN_TEST) --test embedding --test mixture --test durability --test http --test access
	BEANPOLE_WILD=20 $(TSAN_TEST) --test gearman -- $(addprefix --skip ,$(TSAN_MEASURED))
	$(TSAN_TEST) --test conversations over_a_real

memory: build static ## compare the memory of the program, and of the static one, with what its account shows
	$(STARTER) --test memory
	BEANPOLE_PROGRAM=$(call q,$(abspath $(STATIC_PROGRAM))) $(CARGO) test --profile sim $(CARGOFLAGS) --test memory

chaos: build ## treat the program badly on purpose, and see whether it is as healthy afterwards; more of it as root
	$(STARTER) --test chaos -- --ignored --nocapture --test-threads=1

soak: build ## all protocols and extensions at once, with a log, for MINUTES=30; nothing may grow or get lost; TLS=1 with TLS
	MINUTES='$(MINUTES)' $(STARTER) --test soak -- --ignored --nocapture

bench: ## measure, against beanstalkd and gearmand if they are there; ARGS=--pin stays on one CPU, ARGS=--help tells more
	@mkdir -p '$(TARGET_DIR)'
	$(CARGO) bench $(CARGOFLAGS) --bench load -- $(ARGS) >'$(FIGURES).md' || { cat '$(FIGURES).md'; exit 1; }
	@cat '$(FIGURES).md'
	@$(if $(filter-out $(SHARED),$(ARGS)),,$(CARGO) bench $(CARGOFLAGS) --bench picture -- '$(FIGURES).md' '$(FIGURES).svg'; \
	    $(MAKE) --no-print-directory bench-doors)
FIGURES = $(abspath $(TARGET_DIR))/figures

results: ## measure on a quiet machine, and write benches/RESULTS.md with the commit, and its figures as CSV and as a picture
	$(MAKE) --no-print-directory bench ARGS='--pin'
	$(CARGO) bench $(CARGOFLAGS) --bench picture -- '$(FIGURES).md' '$(abspath benches)/RESULTS.md' \
	    "$$(git describe --always --dirty)"
	$(MAKE) --no-print-directory picture

picture: ## draw the figures of benches/RESULTS.md for the README, and write them as CSV
	$(CARGO) bench $(CARGOFLAGS) --bench picture -- $(abspath benches)/RESULTS.md $(abspath benches)/figures.svg

# The same through the other doors, unless ARGS ask for something that only the first benchmark knows.
SHARED = --pin --quick --runs=%
.PHONY: bench-doors
bench-doors:
	@$(if $(RIVAL),GEARMAND='$(RIVAL)' $(CARGO) bench $(CARGOFLAGS) --bench gearman -- $(ARGS),\
	echo 'Gearman was not measured: gearmand is missing (Debian: apt-get install gearman-job-server), or GEARMAND=/path/to/it')
	@$(CARGO) bench $(CARGOFLAGS) --bench workq -- $(ARGS)

# What Gearman is measured against; it may be unpacked rather than installed, for the same reason as above.
RIVAL = $(or $(GEARMAND),$(shell ls /usr/sbin/gearmand target/compat/gearmand/usr/sbin/gearmand 2>/dev/null | head -n 1))

bench-tls: ## what TLS costs: memory, processor time, handshakes, and bytes of the program; needs openssl
	$(CARGO) build --release --locked
	@cp $(call q,$(PROGRAM)) $(call q,$(TARGET_DIR)/without-tls)
	$(CARGO) bench --locked --features tls --bench tls -- $(ARGS)
	@echo "program: $$(wc -c <$(call q,$(PROGRAM))) bytes with TLS, $$(wc -c <$(call q,$(TARGET_DIR)/without-tls)) without"

budget: build $(if $(HAS_MUSL),static) ## compare instructions, memory and file size with benches/budget.txt; ARGS=--update changes it; needs valgrind
	$(CARGO) bench $(CARGOFLAGS) --bench budget -- $(call q,$(abspath $(PROGRAM))) \
	    $(if $(HAS_MUSL),$(call q,$(abspath $(STATIC_PROGRAM)))) $(ARGS)

bench-quick: ## the same roughly, in a minute at most
	$(CARGO) bench $(CARGOFLAGS) --bench load -- --quick $(ARGS)


# The test of the page needs playwright-core, which drives a browser that is there; it is kept out of this folder's way.
BROWSER = $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
PLAYWRIGHT = $(TARGET_DIR)/browser
.PHONY: alerts browser prometheus
browser: build ## try the page in a real browser, by clicks and keys; PICTURES=DIR keeps what it looked like
	@if [ -z '$(BROWSER)' ]; then echo 'a browser is missing (Debian: apt-get install chromium)' >&2; exit 1; fi
	@if [ ! -d '$(PLAYWRIGHT)/node_modules/playwright-core' ]; then \
	    mkdir -p '$(PLAYWRIGHT)' && npm install --silent --no-save --prefix '$(PLAYWRIGHT)' playwright-core; fi
	NODE_PATH='$(PLAYWRIGHT)/node_modules' node tests/browser/page.js $(call q,$(PROGRAM)) '$(BROWSER)' $(PICTURES)

prometheus: build ## have Prometheus scrape it, and hold what queries return against what was done
	tests/compat/prometheus $(call q,$(PROGRAM))

alerts: build ## make every alert of pkg/prometheus fire and resolve
	pkg/test/prometheus $(call q,$(PROGRAM))
