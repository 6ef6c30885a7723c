# The targets for tests and measurements that take minutes or need more than the Rust toolchain, included by the
# Makefile. Variables:
#
#   BEANSTALKD, GEARMAND     for `compat`: the original daemons
#   GO_CLIENTS               for `compat`: the sources of the Go clients (see tests/compat/go_clients), instead of downloads
#   ROWS, ROUNDS, LONG       for `cluster`: which faults, how often each, and whether they last as long as in production.
#                            1 to 37 are numbered faults: 11 is etcd's quota, and 16 is a million schedules in memory; lost,
#                            minority, killed, wiped, restored and replaced are failures of etcd; slow is a standby behind a
#                            slow network; large is a small job next to a large one; relay, import, separate, purge and
#                            restart are other setups; haproxy and keepalived are the documented examples, if these programs
#                            are installed (with REQUIRED=1, they must be); tls is etcd with TLS. all is every
#                            row except tls. With TMPDIR=/dev/shm, the files of etcd are in memory
#   LANES, STRICT, SUMMARY   for `cluster`: how many rows run at the same time; whether a stall that is too long is a failure,
#                            which requires an idle machine; and a file for the result of each round, from which
#                            `tests/cluster/run --manual FILE` prints the stalls for beanpole-cluster(7)
#   COSTS, TAKEOVER, RESTART for `cluster`, instead of faults: measure the cost of a put, the time of a takeover with
#                            1000,100000 jobs, and the time to restart a single server with 200000 entries
#   SEED, RESTARTS, ALSO     for `powercut`: the seed, the amount of testing, and disabled checks to enable
#   TRACE, CUT               for `powercut`: repeat one history, and one power failure in the history
#   KILLS, CRASHES           for `crash`: the number of kills with each sync mode, and the number of power failures
#   SEED, STEPS, SECONDS     for `sim`: one seed, the steps for each seed, and the time for new seeds if SEED is not set
#   SERVER, SEED, ROUNDS     for `judge`: the command to judge, the seed, and the number of rounds; SECONDS limits the time,
#                            and ARGS contains further arguments (see tests/judge/judge.py --help)
#   ROWS, SECONDS            for `judge-tables`: the rows to judge (`tests/judge/tables.py` lists them; short or long is one of
#                            the two tables), and the time for each row
#   FAULT                    for `judge-faults`: one patch of tests/judge/faults
#   COMMIT                   for `publish`: the commit of the figures (default: the commit that `bench` recorded)
#   DEPTH                    for `worlds`: the length of the sequences
#   MINUTES                  for `soak`: the duration (default 1)
#   TARGET, SECONDS          for `fuzz`: one fuzz target, and the time for each target
#   SCENE, SCHEDULES         for `threads`: one scene, and the number of schedules for each scene, with each scheduler
#   FILES, PROMISE, SHARD    for `mutants`: the files to change, or the promise whose code to change, and the part of all
#                            changes to try, such as 3/40

SEED =
RESTARTS =
ROWS = all$(if $(TLS),$(comma)tls)
ROUNDS = 1
LONG =
LANES = 1
STRICT =
SUMMARY =
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

.PHONY: compat tls hostile crash cluster judge judge-tables judge-faults judge-peer powercut sim worlds mutants tsan memory chaos soak bench results publish budget picture bench-quick bench-tls

compat: build oracle ## compare with the original beanstalkd and gearmand, and test real clients; as root, installs what is missing
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(ORACLE)'
	$(CARGO) test $(CARGOFLAGS) --test oracle -- '$(GEARMAN_ORACLE)'
	BEANSTALKD='$(abspath $(ORACLE))' $(CARGO) test $(CARGOFLAGS) --test ctl
	tests/compat/run '$(PROGRAM)'
	tests/compat/workq '$(PROGRAM)'
	CARGO='$(CARGO)' tests/compat/examples $(CARGOFLAGS)
	tests/compat/gearman-suites '$(PROGRAM)'
	$(if $(GEARMAND_INIT),tests/compat/gearmand-init '$(PROGRAM)' '$(GEARMAND_INIT)')

# This target leaves a $(PROGRAM) with TLS, which later targets also use.
tls: ## run the tests of TLS, also with real clients; needs openssl
	$(MAKE) --no-print-directory build TLS=1
	$(CARGO) clippy --locked --features tls --all-targets -- -D warnings
	$(CARGO) test --locked --features tls --test tls --test access --test ctl
	COMPAT_ONLY=tls tests/compat/run '$(PROGRAM)'

# Debian's packages are unpacked and not installed, because an installed package starts its daemon. Only the libraries
# that gearmand needs are installed.
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
	    echo 'beanstalkd, gearmand or etcd is missing (Debian: apt-get install beanstalkd gearman-job-server etcd-server);' \
	        'or set BEANSTALKD=/path/to/beanstalkd GEARMAND=/path/to/gearmand' >&2; \
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
	@echo 'fetching the Debian package gearman-job-server into $(GEARMAN_FETCHED), and installing its libraries'; \
	rm -rf $(GEARMAN_FETCHED) && mkdir -p $(GEARMAN_FETCHED) && cd $(GEARMAN_FETCHED) && \
	{ apt-get update && apt-get download gearman-job-server && dpkg -x gearman-job-server_*.deb . && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$($(GEARMAN_LIBRARIES)); } >fetch.log 2>&1 || \
	{ cat fetch.log >&2; exit 1; }

hostile: build $(if $(ORACLE),,fetch-beanstalkd) ## attack the server, and beanstalkd for comparison; ROW=T3 runs one attack, LIMIT_MS=10 also limits times
	$(CARGO) test $(CARGOFLAGS) --test attacks -- '--program=$(PROGRAM)' '--peer=$(ORACLE)' \
	    $(if $(LIMIT_MS),--limit-ms=$(LIMIT_MS)) $(ROW)

# Runs a test that starts the given program. Builds the test program itself with less optimization, which takes less time.
starter = BEANPOLE_PROGRAM=$(call q,$(abspath $(1))) $(CARGO) test --profile sim $(CARGOFLAGS)
STARTER = $(call starter,$(PROGRAM))

crash: build ## kill the server under load, and cut the power of a simulated disk; takes minutes; KILLS=60 CRASHES=30000 for fewer
	BEANPOLE_KILLS='$(or $(KILLS),170)' $(STARTER) --test durability kill -- --nocapture
	BEANPOLE_WILD=2000 $(STARTER) --test gearman anything
	MIXTURES=10000 BEANPOLE_CRASHES='$(or $(CRASHES),100000)' $(STARTER) --test crash -- --nocapture

cluster: build $(if $(ETCD),,fetch-etcd) ## test failures of a cluster with three etcd servers; takes minutes; ROWS=1,4 ROUNDS=20 LANES=5, or COSTS=1
	$(if $(filter all 16,$(subst $(comma), ,$(ROWS))),BEANPOLE_SCHEDULES=1000000 $(CARGO) test --profile sim $(CARGOFLAGS) --test cluster \
	    confirmed_changes_survive -- --nocapture)
	tests/cluster/run '$(PROGRAM)' --rows '$(ROWS)' --rounds '$(ROUNDS)' --etcd '$(ETCD)' \
	    --lanes '$(or $(LANES),1)' $(if $(STRICT),--strict-times) $(if $(SUMMARY),--summary '$(SUMMARY)') \
	    $(if $(LONG),--long) $(if $(COSTS),--costs) $(if $(TAKEOVER),--takeover '$(TAKEOVER)') \
	    $(if $(RESTART),--restart '$(RESTART)')

powercut: build ## simulate power failures of the real program; takes minutes; SEED=1000 for other cuts, TRACE= CUT= to repeat one
	$(CARGO) test $(CARGOFLAGS) --test powercut -- '--program=$(PROGRAM)' '--seed=$(SEED)' '--restarts=$(RESTARTS)' \
	    '--also=$(ALSO)' '--trace=$(TRACE)' '--cut=$(CUT)'

# The command of a server that speaks the beanstalk protocol. The judge replaces {port} and {dir}.
SERVER = $(abspath $(PROGRAM)) -l 127.0.0.1 -p {port} -b {dir} -f0
judge: $(if $(filter file,$(origin SERVER)),build) ## check the replies of a server under a seeded load with faults; SERVER='COMMAND with {port} and {dir}'
	python3 tests/judge/judge.py $(call q,$(SERVER)) --seed '$(or $(SEED),1)' --seconds '$(or $(SECONDS),300)' \
	    --rounds '$(if $(filter command environment,$(firstword $(origin ROUNDS))),$(ROUNDS),10)' $(ARGS)

judge-tables: $(if $(ORACLE),,fetch-beanstalkd) $(if $(ETCD),,fetch-etcd) ## judge beanstalkd and all modes of beanpole, and replace the rows of benches/JUDGE.md; at most 70 minutes; ROWS=f0,pair, or ROWS=long
	$(MAKE) --no-print-directory build TLS=1
	@cp $(call q,$(PROGRAM)) $(call q,$(TARGET_DIR)/with-tls)
	$(MAKE) --no-print-directory build
	python3 tests/judge/tables.py --program $(call q,$(abspath $(PROGRAM))) --tls-program $(call q,$(abspath $(TARGET_DIR))/with-tls) \
	    --peer '$(abspath $(ORACLE))' --etcd '$(abspath $(ETCD))' --commit "$(MEASURED)" --seconds '$(or $(SECONDS),0)' \
	    --rows '$(if $(filter command environment,$(firstword $(origin ROWS))),$(ROWS),short)'

# The commit of the program in published results. Published results themselves do not make a commit dirty.
MEASURED = $$(git describe --always)$$(git diff --quiet HEAD -- src 'benches/*.rs' Cargo.toml Cargo.lock 2>/dev/null || echo -dirty)

judge-faults: ## check that the judge finds each defect of tests/judge/faults in a copy of beanpole; takes at most half an hour; FAULT=PATCH for one
	CARGO=$(call q,$(CARGO)) CARGO_TARGET_DIR=$(call q,$(abspath $(TARGET_DIR))/judge) tests/judge/plant $(FAULT)
FAULT =

judge-peer: $(if $(ORACLE),,fetch-beanstalkd) ## check that the judge finds two known defects of beanstalkd; takes at most two minutes
	tests/judge/finds 'time limit lost,job lost' \
	    '$(abspath $(ORACLE)) -l 127.0.0.1 -p {port} -b {dir} -f0 -s 65536' \
	    --seed 1 --rounds 3 --seconds 80 --faults kill,stop

sim: ## simulate the whole server with new seeds for SECONDS=300, or with SEED=7; STEPS=500 sets the length
	SEED='$(SEED)' STEPS='$(STEPS)' SECONDS='$(SECONDS)' \
	    $(CARGO) test --profile sim $(CARGOFLAGS) --test sim requested_seeds -- --ignored --nocapture

worlds: ## run all sequences of up to six verbs for two clients, three jobs and two tubes; takes minutes; DEPTH=5 for shorter ones
	BEANPOLE_DEPTH='$(or $(DEPTH),6)' $(CARGO) test --profile sim $(CARGOFLAGS) --lib every_short_sequence_of_calls -- --nocapture

# Coverage instrumentation requires nightly Rust. New inputs are kept in FUZZED; copy the important ones to
# tests/fuzz/corpus.
FUZZED = $(TARGET_DIR)/fuzz
fuzz: ## run the fuzzers; TARGET=log for one target, SECONDS=600 for each target; needs nightly Rust and cargo-fuzz
	@if ! $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then \
	    echo 'nightly Rust or cargo-fuzz is missing: rustup toolchain install nightly; cargo install cargo-fuzz' >&2; exit 1; \
	fi
	@set -e; for target in $(or $(TARGET),$(notdir $(wildcard tests/fuzz/corpus/*))); do \
	    mkdir -p '$(FUZZED)/'$$target; \
	    CARGO_TARGET_DIR='$(abspath $(FUZZED))' $(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz/cargo-fuzz -s none $$target \
	        '$(abspath $(FUZZED))/'$$target 'tests/fuzz/corpus/'$$target -- -max_total_time=$(or $(SECONDS),60) -max_len=2000 \
	        -timeout=20 -print_final_stats=1; \
	done

# .cargo/mutants.toml selects the tests that must detect the mutations. PROMISE is the number of a promise in
# beanpole-promises(7): the files that cite this promise are mutated, and the test programs that cite it run as well.
PROMISE =
CITING = promises? (.* )?$(PROMISE)[ .]
ENFORCING = $(if $(PROMISE),$(shell grep -rlE '^//! Enforces $(CITING)' src))
TESTING = $(if $(PROMISE),$(filter-out $(EXCLUDED),$(sort \
	$(shell grep -rlE '^ *(//|\#) Tests $(CITING)' tests | sed 's|^tests/\([^/.]*\).*|\1|'))))
mutants: ## find small mistakes in the code that no test detects; FILES='src/binlog/*', PROMISE=P12, SHARD=3/40; needs cargo-mutants
	@if ! $(CARGO) mutants --version >/dev/null 2>&1; then \
	    echo 'cargo-mutants is missing: cargo install --locked cargo-mutants' >&2; exit 1; \
	fi
	@if [ -n '$(PROMISE)' ] && [ -z '$(ENFORCING)' ]; then \
	    echo 'PROMISE=$(PROMISE): no file enforces this promise; see ARCHITECTURE.md, Promises' >&2; exit 1; \
	fi
	$(CARGO) mutants --output '$(abspath $(TARGET_DIR))' --sharding round-robin --cargo-arg=--locked $(foreach file,$(or $(ENFORCING),$(FILES)),--file '$(file)') \
	    $(if $(SHARD),--shard '$(SHARD)') $(if $(TESTING),-- $(TESTING:%=--test=%))

threads: ## test thread interleavings of the production code; SCHEDULES=50000, SCENE=replies-in-order; downloads shuttle
	SCENE='$(SCENE)' SCHEDULES='$(SCHEDULES)' CARGO_TARGET_DIR='$(abspath $(TARGET_DIR))/threads' \
	    $(CARGO) run --release --locked --manifest-path tests/threads/Cargo.toml

# ThreadSanitizer needs an instrumented standard library, which is therefore built from source: with nightly Rust, or with
# Debian's Rust and the sanitizer and linker of rustup's Rust.
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
# These tests measure memory and fail because of the sanitizer's own memory usage.
TSAN_MEASURED = sends_itself_updates does_not_read updates_for_very_many
tsan: ## find data races with ThreadSanitizer; needs the source of Rust's standard library
	@if [ -z '$(or $(NIGHTLY_SOURCE),$(DEBIAN_SOURCE))' ]; then \
	    echo 'the source of the standard library is missing: rustup toolchain install nightly --component rust-src' \
	        "(Debian, beside rustup's Rust: apt-get install rustc-web cargo-web rust-web-src)" >&2; exit 1; \
	fi
	$(TSAN_TEST) --lib server:: -- --skip as_many_clients_are_dropped
	BEANPOLE_WILD=20 $(TSAN_TEST) --test embedding --test mixture --test durability --test http --test access
	BEANPOLE_WILD=20 $(TSAN_TEST) --test gearman -- $(addprefix --skip ,$(TSAN_MEASURED))
	$(TSAN_TEST) --test conversations over_a_real

MEMORY_TEST = $(if $(TLS),tls memory,memory)
memory: build static ## compare the memory of the dynamic and the static program with the memory that the server counts; TLS=1 runs the tests of TLS instead
	$(STARTER) --test $(MEMORY_TEST)
	$(call starter,$(STATIC_PROGRAM)) --test $(firstword $(MEMORY_TEST))

chaos: build ## test the program under stops, floods, full disks and lack of resources; runs more tests as root
	$(STARTER) --test chaos -- --ignored --nocapture --test-threads=1

soak: build ## run all protocols at once for MINUTES=30, and check that nothing grows or gets lost; TLS=1 uses TLS
	MINUTES='$(MINUTES)' $(STARTER) --test soak -- --ignored --nocapture

bench: ## run the benchmarks, compared with installed beanstalkd and gearmand; ARGS=--pin uses one CPU, ARGS=--help lists options
	@mkdir -p '$(TARGET_DIR)' && echo "$(MEASURED)" >'$(FIGURES).commit'
	$(CARGO) bench $(CARGOFLAGS) --bench load -- $(ARGS) >'$(FIGURES).md' || { cat '$(FIGURES).md'; exit 1; }
	@cat '$(FIGURES).md'
	@$(if $(filter-out $(SHARED),$(ARGS)),,$(CARGO) bench $(CARGOFLAGS) --bench picture -- '$(FIGURES).md' '$(FIGURES).svg'; \
	    $(MAKE) --no-print-directory bench-doors)
FIGURES = $(abspath $(TARGET_DIR))/figures

results: static ## run the benchmarks, and update benches/RESULTS.md, the CSV file and the picture; needs an idle machine
	$(MAKE) --no-print-directory bench ARGS='--pin --static=$(abspath $(STATIC_PROGRAM))'
	$(MAKE) --no-print-directory publish

# Does not measure anything. To publish figures of another tree, copy its figures.md into the target directory, and set COMMIT.
COMMIT = $(shell cat '$(FIGURES).commit' 2>/dev/null)
publish: ## update benches/RESULTS.md, the CSV file and the picture from the last run of `make bench ARGS=--pin`
	$(if $(COMMIT),,$(error the commit of the figures is unknown; set COMMIT))
	$(CARGO) bench $(CARGOFLAGS) --bench picture -- '$(FIGURES).md' '$(abspath benches)/RESULTS.md' '$(COMMIT)'
	$(MAKE) --no-print-directory picture

picture: ## draw the figures of benches/RESULTS.md for the README, and write them as CSV
	$(CARGO) bench $(CARGOFLAGS) --bench picture -- $(abspath benches)/RESULTS.md $(abspath benches)/figures.svg

# The benchmarks for Gearman and Workq. `bench` runs them unless ARGS contains an option that only the load benchmark
# supports.
SHARED = --pin --quick --runs=% --static=%
.PHONY: bench-doors
bench-doors:
	@$(if $(RIVAL),GEARMAND='$(RIVAL)' $(CARGO) bench $(CARGOFLAGS) --bench gearman -- $(ARGS),\
	echo 'Gearman was not measured: gearmand is missing (Debian: apt-get install gearman-job-server, or set GEARMAND=/path/to/gearmand)')
	@$(CARGO) bench $(CARGOFLAGS) --bench workq -- $(ARGS)

# The gearmand to compare with in benchmarks: the installed program, or the program that `fetch-gearmand` has unpacked.
RIVAL = $(or $(GEARMAND),$(shell ls /usr/sbin/gearmand target/compat/gearmand/usr/sbin/gearmand 2>/dev/null | head -n 1))

bench-tls: ## measure the cost of TLS: memory, CPU time, handshakes, and program size; needs openssl
	$(CARGO) build --release --locked
	@cp $(call q,$(PROGRAM)) $(call q,$(TARGET_DIR)/without-tls)
	$(CARGO) bench --locked --features tls --bench tls -- $(ARGS)
	@echo "program: $$(wc -c <$(call q,$(PROGRAM))) bytes with TLS, $$(wc -c <$(call q,$(TARGET_DIR)/without-tls)) without"

budget: build $(if $(HAS_MUSL),static) ## compare instructions, memory and file size with benches/budget.txt; ARGS=--update changes it; needs valgrind
	$(CARGO) bench $(CARGOFLAGS) --bench budget -- $(call q,$(abspath $(PROGRAM))) \
	    $(if $(HAS_MUSL),$(call q,$(abspath $(STATIC_PROGRAM)))) $(ARGS)

bench-quick: ## run bench with less precision, in at most a minute
	$(CARGO) bench $(CARGOFLAGS) --bench load -- --quick $(ARGS)


# The test of the web page requires an installed browser. The target installs playwright-core in the target directory.
BROWSER = $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
PLAYWRIGHT = $(TARGET_DIR)/browser
.PHONY: alerts browser prometheus
browser: build ## test the web page in a real browser; PICTURES=DIR stores screenshots
	@if [ -z '$(BROWSER)' ]; then echo 'a browser is missing (Debian: apt-get install chromium)' >&2; exit 1; fi
	@if [ ! -d '$(PLAYWRIGHT)/node_modules/playwright-core' ]; then \
	    mkdir -p '$(PLAYWRIGHT)' && npm install --silent --no-save --prefix '$(PLAYWRIGHT)' playwright-core; fi
	NODE_PATH='$(PLAYWRIGHT)/node_modules' node tests/browser/page.js $(call q,$(PROGRAM)) '$(BROWSER)' $(PICTURES)

prometheus: build ## test the metrics with queries in a real Prometheus
	tests/compat/prometheus $(call q,$(PROGRAM))

alerts: build ## make every alert of pkg/prometheus fire and resolve
	pkg/test/prometheus $(call q,$(PROGRAM))
