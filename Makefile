# What each target does: `make help`.

.PHONY: help setup build deb run test test-packages test-nginx test-valkey test-asan explore lint docs alerts containers-check fmt figures fuzz release release-check screenshots clean
.DEFAULT_GOAL := help

export NGINX_SOURCE_DIR := /usr/share/nginx/src
export NGINX_BUILD_DIR := $(CURDIR)/target/nginx/objs
# Tests from outside wait longer than they compute, so more of them run than there are processors.
export RUST_TEST_THREADS ?= $(shell echo $$((3 * $$(nproc))))

help:
	@echo 'make run     from a fresh checkout to a running service in the foreground'
	@echo '             (PUBLIC_PORT=8080 INTERNAL_PORT=8081 VAR_DIR=var)'
	@echo 'make test    format, lints, the book and every test, real servers included'
	@echo 'make lint    format, clippy, the words of documents, comments and messages, and the clients'
	@echo 'make docs    builds the book into target/book and checks the links of all documents'
	@echo 'make test-packages   the Debian packages, built and installed on this release of Debian'
	@echo 'make test-nginx NGINX_SOURCE=<tarball or tree>   the tests from outside, on that nginx or OpenResty'
	@echo 'make test-valkey   the tests that depend on Redis, on Valkey 9 (VALKEY=8)'
	@echo 'make test-asan   the same with AddressSanitizer, on Debian'\''s nginx (or NGINX_SOURCE=…)'
	@echo 'make explore random faults on the real system for MINUTES (30); SEED=… repeats one, SHRINK=1 finds the fewest'
	@echo 'make figures  measures the figures of README and book, and writes these; an hour on an idle machine'
	@echo 'make fuzz    every fuzz target for FUZZ_SECONDS (60) each'
	@echo 'make alerts  checks the rules for Prometheus and runs their tests'
	@echo 'make containers-check   builds the images without a registry and runs them'
	@echo 'make build   the sidecar and the module, optimised, into target/'
	@echo '             (NGINX=<tarball or tree>: only the module, for that nginx or OpenResty)'
	@echo 'make deb     Debian packages of both, into target/deb/'
	@echo '             (NGINX=<tarball or tree>: of the module, for the packages of nginx.org or OpenResty)'
	@echo 'make release   the files of a release, from the last commit, into target/dist/ (NGINX_SOURCES=<folder>; DRAFT=1)'
	@echo 'make release-check   makes them again and compares them'
	@echo 'make screenshots   screenshots of the console, into docs/src/screenshots/'
	@echo 'make setup   install what is missing, through apt'
	@echo 'make lint, make fmt, make clean'

setup:
	@scripts/setup

build: setup
	@$(if $(NGINX),scripts/setup nginx)
	@NGINX="$(NGINX)" scripts/build

deb: build
	@scripts/setup deb
	@$(if $(NGINX),scripts/build-module-deb "$(NGINX)",scripts/build-deb)

# What is wrong with the settings shows before the build, which takes minutes the first time.
run:
	@scripts/run --check
	@scripts/setup
	@scripts/build run
	@exec scripts/run

lint:
	@scripts/setup lint
	@scripts/configure-nginx target/nginx/objs
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/prose
	scripts/version --check
	scripts/notices
	bench/collect --check
	scripts/clients typescript
	scripts/clients python

docs:
	@scripts/setup docs
	@scripts/docs

# Without the examples, which clippy has compiled, and the program, which is built for release.
test: build lint docs deb
	@scripts/setup test
	scripts/test --tests -- --skip http3::

# scripts/test-debian runs this on another release.
test-packages: deb
	cargo test --locked -p shortlink-tests packages

# What no version of nginx makes a difference for: what asks the sidecar alone, and what tests with several processes
# whose nginx does only what others here show of it.
OF_SIDECAR := backup campaign_links cli clickhouse clients cluster_publishing clocks console console_campaigns console_keys console_live \
	console_message console_statistics doctor domains_nodes erasure failover full_disk keys kills kubernetes lanes moves newcomer openapi operations packages postgres replica run \
	schemathesis secured_publishing stops tidy traces transfer unique urls visits_feed visits_kept visits_kills visits_live visits_live_topologies \
	visits_stored warehouse watch webhooks

# TESTS: filters of the tests, instead of all that depend on nginx. Where headers are edited, once is enough.
test-nginx: build
	@scripts/setup nginx
	@scripts/setup test
	scripts/test-nginx "$(NGINX_SOURCE)" $(or $(TESTS),$(OF_SIDECAR:%=--skip %::) --skip foreign_module::)

# TESTS: filters of the tests from outside, instead of all that depend on Redis.
test-valkey: build
	@scripts/setup test
	scripts/test-valkey "$(or $(VALKEY),9)" $(TESTS)

# On Debian's nginx, or on that of NGINX_SOURCE. TESTS: filters of the tests, instead of all.
test-asan: build
	@scripts/setup asan
	@scripts/setup test
	scripts/test-asan "$(or $(NGINX_SOURCE),debian)" $(TESTS)

# The variables MINUTES, JOBS and SEED reach the program through its environment.
explore: build
	@scripts/setup test
	@cargo run --quiet -p shortlink-tests --example explore -- $(if $(SHRINK),--shrink)

alerts:
	@scripts/setup test
	cd operations && promtool check rules alerts.yml && promtool check config prometheus.yml \
		&& promtool test rules alerts.test.yml

containers-check:
	@scripts/setup containers
	@scripts/containers-check

# The variable NGINX_SOURCES reaches the program through its environment.
release:
	@scripts/release $(if $(DRAFT),--draft)

release-check:
	@scripts/release --check $(if $(DRAFT),--draft)

fmt:
	cargo fmt --all

# ONLY: parts of the commands' texts, such as ONLY="bench/run bench/visits".
figures: build
	@scripts/setup bench
	@bench/collect $(ONLY)

fuzz: setup
	@scripts/fuzz

screenshots: build
	@scripts/setup screenshots
	cargo run -p shortlink-tests --example screenshots docs/src/screenshots

clean:
	cargo clean
