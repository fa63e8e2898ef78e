# What people and machines run here. `make help` lists it.

.DEFAULT_GOAL := help
.PHONY: help formatting demo demo-go demo-languages demo-python bench bench-c bench-cpp bench-go bench-python notnets-go bench-against bench-check bench-hops bench-met bench-peers test c c-core cpp conformance figures generators go go-fuzz go-outside go-platforms googleapis interop interop-table lab python python-wheel gateway-outside lint doc loom nightly msrv platforms aarch64 miri mutants deny dist install-c fuzz publish semver stated deb image deploy-check dist-c dist-wheel

# Loom rebuilds everything with another cfg: a directory of its own keeps both builds warm.
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))

# The laboratory is a workspace of its own; what it builds lies beside the rest.
comma := ,
IN_LAB := cd lab && CARGO_TARGET_DIR=$(TARGET_DIR)
# The laboratory's command without what takes as long to build as all the rest: it has what compares calls.
QUICK_LAB := $(IN_LAB) cargo build --quiet --profile quick --package tollfree-lab --no-default-features

# What is compiled for the tests is linted with the same: nothing is built a second time for the lints.
LINTED := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/compile-and-lint

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# DEMO=debug has it from what the tests are built of, as the gate does.
demo: ## Make the same calls over a Unix socket and over Tollfree (under 30 s after the build)
	@$(if $(filter debug,$(DEMO)),$(LINTED) cargo build --quiet --workspace --all-targets,cargo build --quiet --profile demo --package tollfree-demo)
	@exec $(TARGET_DIR)/$(or $(DEMO),demo)/tollfree-demo

demo-go: ## The same in Go: grpc-go over a Unix socket, and Tollfree; then one trace through Go and Rust (fetches gRPC and OpenTelemetry)
	@command -v go >/dev/null || { echo "make demo-go: install Go 1.26 or later" >&2; exit 1; }
	@cd go && go run ./cmd/tollfree-demo
	@echo
	@examples/trace/run $(TARGET_DIR) rust

demo-languages: ## Make a call through services in Go, Rust, Python and C++, and print its trace (fetches gRPC and OpenTelemetry; says what it leaves out)
	@command -v go >/dev/null || { echo "make demo-languages: install Go 1.26 or later" >&2; exit 1; }
	@examples/trace/run $(TARGET_DIR) rust python cpp

demo-python: ## The same in Python: grpcio over a Unix socket, and Tollfree (fetches grpcio; a minute of building)
	@command -v python3 >/dev/null || { echo "make demo-python: install CPython 3.11 or later" >&2; exit 1; }
	@cargo build --quiet --profile demo --package tollfree-python
	@python/demo $(TARGET_DIR)

bench: ## Compare Tollfree with stock tonic on this machine (about a minute after the build)
	@$(QUICK_LAB)
	@exec $(TARGET_DIR)/quick/tollfree-lab bench echo

stated: ## Measure figures that documents state, and fail where one has left its spread (a minute after the build)
	@$(QUICK_LAB)
	@exec $(TARGET_DIR)/quick/tollfree-lab stated

figures: ## Measure DmRPC's figures and draw them, into bench-out (half an hour after the build; ROUNDS=1 is quicker)
	@$(IN_LAB) cargo build --quiet --release
	@for figure in dmrpc-fig5 dmrpc-fig6 dmrpc-fig7 dmrpc-fig8 dmrpc-fig10 dmrpc-fig11; do \
		$(TARGET_DIR)/release/tollfree-lab figure $$figure $(if $(ROUNDS),--rounds $(ROUNDS)) --out bench-out/$$figure || exit 1; done

bench-c: ## Compare the side in C with Rust's: stubs, and the same driver without C (a minute after the build)
	@$(MAKE) --no-print-directory install-c PREFIX=$(TARGET_DIR)/bench-c
	@cc -O2 -std=gnu11 -Wall -Wextra -Werror -pthread -o $(TARGET_DIR)/bench-c/peer lab/bench/c/peer.c \
		-I$(TARGET_DIR)/bench-c/include -L$(TARGET_DIR)/bench-c/lib -ltollfree -Wl,-rpath,$(TARGET_DIR)/bench-c/lib
	@$(QUICK_LAB)
	@TOLLFREE_BENCH_C=$(TARGET_DIR)/bench-c/peer $(TARGET_DIR)/quick/tollfree-lab bench echo --side c,loop,tollfree-direct,tonic-unix

bench-cpp: ## Compare C++'s sides: Tollfree by both stubs, and gRPC C++ over a Unix socket (needs gRPC C++; two minutes after the build)
	@$(MAKE) --no-print-directory install-c PREFIX=$(TARGET_DIR)/bench-cpp/prefix
	@cmake -S cpp -B $(TARGET_DIR)/bench-cpp/library -DCMAKE_PREFIX_PATH=$(TARGET_DIR)/bench-cpp/prefix -DCMAKE_INSTALL_PREFIX=$(TARGET_DIR)/bench-cpp/prefix >/dev/null
	@cmake --build $(TARGET_DIR)/bench-cpp/library --target install --parallel >/dev/null
	@cmake -S lab/bench/cpp -B $(TARGET_DIR)/bench-cpp/peer -DCMAKE_PREFIX_PATH=$(TARGET_DIR)/bench-cpp/prefix >/dev/null
	@cmake --build $(TARGET_DIR)/bench-cpp/peer >/dev/null
	@$(QUICK_LAB)
	@TOLLFREE_BENCH_CPP=$(TARGET_DIR)/bench-cpp/peer/peer $(TARGET_DIR)/quick/tollfree-lab bench echo --side cpp,cpp-stock,grpc-cpp,tollfree-direct,tonic-unix

bench-go: ## Compare Go's sides: Tollfree, and grpc-go over a Unix socket (fetches gRPC; three minutes after the build)
	@command -v go >/dev/null || { echo "make bench-go: install Go 1.26 or later" >&2; exit 1; }
	@cd lab/bench/go && go build -o $(TARGET_DIR)/bench-go/peer .
	@$(QUICK_LAB)
	@TOLLFREE_BENCH_GO=$(TARGET_DIR)/bench-go/peer $(TARGET_DIR)/quick/tollfree-lab bench echo --side go,go-inline,go-direct,go-to-rust,rust-to-go,grpc-go,tollfree-direct,tonic-unix
	@TOLLFREE_BENCH_GO=$(TARGET_DIR)/bench-go/peer $(TARGET_DIR)/quick/tollfree-lab bench stream --side go,grpc-go --streams 1
	@TOLLFREE_BENCH_GO=$(TARGET_DIR)/bench-go/peer $(TARGET_DIR)/quick/tollfree-lab bench paced --side go,grpc-go

bench-python: ## Compare Python's sides: Tollfree, and grpcio over a Unix socket (fetches grpcio; four minutes after the build)
	@command -v python3 >/dev/null || { echo "make bench-python: install CPython 3.11 or later" >&2; exit 1; }
	@cargo build --quiet --release --package tollfree-python
	@$(QUICK_LAB)
	@lab/bench/python/run $(TARGET_DIR) $(TARGET_DIR)/quick/tollfree-lab bench echo --size 64 --inflight 1,64 --placement split \
		--side python,python-inline,python-to-rust,python-aio,python-aio-to-rust,grpcio,grpcio-aio,tollfree-direct
	@lab/bench/python/run $(TARGET_DIR) $(TARGET_DIR)/quick/tollfree-lab bench echo --size 16777216 --inflight 1 --placement split \
		--side python-ref,python-ref-to-rust,grpcio
	@lab/bench/python/run $(TARGET_DIR) $(TARGET_DIR)/quick/tollfree-lab bench stream --size 1024 --streams 1 --side python,grpcio
	@lab/bench/python/run $(TARGET_DIR) $(TARGET_DIR)/quick/tollfree-lab bench paced --side python,python-inline,grpcio

notnets-go: ## Make NotNets' table 1 with Go's sides: 200,000 calls each, against grpc-go over TCP (fetches gRPC; a minute)
	@command -v go >/dev/null || { echo "make notnets-go: install Go 1.26 or later" >&2; exit 1; }
	@cd lab/bench/go && exec go run . notnets -rounds 3

bench-against: ## Run a bench with this working tree and with REV by turns, and compare (BENCH="echo --size 64", ROUNDS=10, JSON=1)
	@test -n "$(REV)" || { echo "make bench-against: say which revision: REV=main" >&2; exit 1; }
	@lab/bench/against $(TARGET_DIR)/against $(REV) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json) -- \
		bench $(or $(BENCH),echo --size 64 --inflight 1$(comma)64 --side tollfree$(comma)tollfree-direct)

bench-check: ## Count instructions and allocations of a call, and compare with the counts kept (WRITE=--write keeps them)
	@lab/bench/instructions $(or $(COUNTS_DIR),$(TARGET_DIR)/instructions) $(WRITE)

bench-met: ## Count the files and functions that a plain call meets, at each level (needs valgrind; LIST=1 names them)
	@lab/bench/met $(or $(COUNTS_DIR),$(TARGET_DIR)/met) $(if $(LIST),--list)

bench-hops: ## Count what decoding, encoding and verifying take over three nested calls, against once (needs valgrind)
	@lab/bench/hops $(or $(COUNTS_DIR),$(TARGET_DIR)/hops)

bench-peers: ## Build the peers of `tollfree-lab bench`: iceoryx2, and C++ protobuf (needs protobuf-compiler, libprotobuf-dev)
	@$(IN_LAB) cargo clippy --quiet --package tollfree-bench --features iceoryx2 -- -D warnings
	@$(IN_LAB) cargo build --quiet --release --package tollfree-lab --features iceoryx2
	@lab/codec/peers/cpp/build.sh $(TARGET_DIR)/bench-peers

# More threads than processors: many tests wait for other processes, and for deadlines.
test: formatting ## Check everything that takes minutes: formatting, lints, tests, Go, Python, concurrency models, the laboratory
	@$(LINTED) cargo build --quiet --workspace --all-targets
	@RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(($$(nproc) + 2))} $(LINTED) cargo test --quiet --workspace --no-fail-fast
	@$(MAKE) --no-print-directory go BUILT=1 RACE=
	@$(MAKE) --no-print-directory python BUILT=1
	@$(MAKE) --no-print-directory loom lab

lab: ## Build the laboratory, and have it make a few calls
	@$(IN_LAB) cargo build --quiet
	@for arguments in "bench echo --size 64 --inflight 1 --placement unpinned --side session,tollfree-direct,tollfree,tonic-unix --seconds 0.02" \
		"bench stream --streams 2 --side tonic-unix,tollfree,tollfree-direct --seconds 0.02" \
		"workload echo --size 64 --side tonic,inline --seconds 0.05"; do \
		$(TARGET_DIR)/debug/tollfree-lab $$arguments --rounds 1 --json --out $(TARGET_DIR)/lab-smoke >$(TARGET_DIR)/lab-smoke.txt 2>&1 || \
			{ cat $(TARGET_DIR)/lab-smoke.txt >&2; exit 1; }; done

conformance: ## Run protobuf's conformance suite against the engine, and through generated views, and compare with upb (fetches both)
	@cargo build --quiet --package tollfree-conformance
	@tests/conformance/run $(TARGET_DIR)/conformance $(TARGET_DIR)/debug/tollfree-conformance
	@echo "the same through generated views and builders"
	@TOLLFREE_CONFORMANCE_SET=$(abspath $(TARGET_DIR))/conformance/messages.binpb \
		cargo build --quiet --package tollfree-conformance --features generated
	@tests/conformance/run $(TARGET_DIR)/conformance $(TARGET_DIR)/debug/tollfree-conformance
	@tests/conformance/differential $(TARGET_DIR)/conformance $(TARGET_DIR)/debug/tollfree-conformance $(DIFFERENTIAL_FLAGS)

generators: ## Have protoc and buf run protoc-gen-tollfree, and compare with what a build.rs gets (fetches them)
	@cargo build --quiet --package tollfree-build
	@crates/build/generators/run $(TARGET_DIR)/generators $(TARGET_DIR)/debug/protoc-gen-tollfree

# What the Go implementation knows of the vectors: all but refused-by-gateway, as it has no gateway.
GO_TOPICS := handshake refused-by-server violation-to-server violation-to-client conversation-to-server conversation-to-client \
	ring ring-head ring-cursor waiting load device table fingerprint describe decode verify extent ref ref-tag take pool-member pool-words pool-message

# `make test` has built the reference, and leaves the race detector out (RACE=).
RACE := -race

go: ## Check the Go implementation: lints, tests, vectors, calls to and from the reference, and the bench's part in Go (fetches gRPC)
	@command -v go >/dev/null || { echo "make go: install Go 1.26 or later" >&2; exit 1; }
	@$(if $(BUILT),,cargo build --quiet --package tollfree-interop --package tollfree-vectors --package tollfree-testkit)
	@$(if $(BUILT),,cargo build --quiet --package tollfree-examples --example relay)
	@cd go && unformatted=$$(gofmt -l . ../examples/trace) && test -z "$$unformatted" || { echo "make go: gofmt has to change $$unformatted" >&2; exit 1; }
	@cd go && go vet -tags interop ./... && go tool -modfile=tools.mod staticcheck -tags interop ./...
	@cd go && TOLLFREE_INTEROP=$(TARGET_DIR)/debug/tollfree-interop TOLLFREE_HOSTILE=$(TARGET_DIR)/debug/tollfree-hostile \
		go test $(RACE) -tags interop ./...
	@cd lab/bench/go && go vet ./... && go test ./...
	@cd examples/trace && go vet ./... && TOLLFREE_TRACE_SERVICES="rust-service=$(TARGET_DIR)/debug/examples/relay" go test $(RACE) ./...
	@cd go && go build -o $(TARGET_DIR)/go/tollfree-vectors ./cmd/tollfree-vectors
	@$(TARGET_DIR)/debug/tollfree-vectors $(foreach topic,$(GO_TOPICS),--topic $(topic)) $(TARGET_DIR)/go/tollfree-vectors

c: ## Check the C library: its header, its examples, programs under sanitizers (VALGRIND=1: under valgrind)
	@$(if $(VALGRIND),TOLLFREE_VALGRIND=1) cargo test --quiet --package tollfree-capi

install-c: ## Build the C library and install it: PREFIX=/usr/local DESTDIR=
	@cargo build --quiet --locked --release --package tollfree-capi
	@crates/capi/packaging/install $(TARGET_DIR)/release/libtollfree_capi.a $(or $(PREFIX),/usr/local) $(DESTDIR)

# `make test` has built what the tests run.
python: ## Check the Python package: lints, types, tests, calls to and from the reference (fetches grpcio)
	@command -v python3 >/dev/null || { echo "make python: install CPython 3.11 or later" >&2; exit 1; }
	@$(if $(BUILT),,cargo build --quiet --package tollfree-python --package tollfree-interop --package tollfree-testkit --package tollfree-vectors)
	@TOLLFREE_INTEROP=$(TARGET_DIR)/debug/tollfree-interop TOLLFREE_HOSTILE=$(TARGET_DIR)/debug/tollfree-hostile \
		python/check $(TARGET_DIR)

python-wheel: ## Build the wheel, install it in an empty environment, and call a Rust server (fetches maturin and grpcio)
	@cargo build --quiet --package tollfree-interop
	@python/wheel $(TARGET_DIR)

# What it needs is not installed here. TOLLFREE_CPP_MUST=1: what is missing is a failure.
cpp: ## Check the C++ library: its tests, its examples, calls to and from the reference (needs gRPC C++; eight minutes after the build)
	@cpp/check $(TARGET_DIR)

go-outside: ## Run other projects over the Go implementation: gRPC's cases in each pairing, grpcurl, ghz, grpc-go's own tests (fetches them)
	@cargo build --quiet --package tollfree-interop
	@cd go/outside && go vet ./... && TOLLFREE_INTEROP=$(TARGET_DIR)/debug/tollfree-interop go test -count=1 ./...

# The tag has on Linux what other systems get. Tests with 32 bits run where the processor has them.
go-platforms: ## Build the Go module for other systems and processors, and test what it does where there is no shared memory
	@cd go && for target in linux/arm64 linux/riscv64 linux/arm linux/386 darwin/amd64 darwin/arm64 windows/amd64; do \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} go build ./... || { echo "make go-platforms: see above, $$target" >&2; exit 1; }; done
	@cd go && go vet -tags tollfree_elsewhere ./... && go test -count=1 -tags tollfree_elsewhere -run 'RefusedElsewhere|OnTCPElsewhere' .
	@if [ "$$(uname -m)" = x86_64 ]; then cd go && GOARCH=386 go test . ./flat ./internal/...; fi

# The tests of `make go` begin with the same inputs, those of the test vectors.
go-fuzz: ## Fuzz each target of the Go implementation for S=seconds; finds go to testdata/fuzz of the target's package
	@cd go && for file in $$(grep -rl '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$file); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(S),20)s ./$$(dirname $$file) || exit 1; done; done

googleapis: ## Generate Google's public files at all levels, and compile them (fetches them), or DIRECTORIES="spanner cloud/kms" of them
	@CARGO_TARGET_DIR=$(TARGET_DIR) tests/names/googleapis $(TARGET_DIR)/googleapis $(DIRECTORIES)

interop: ## Run gRPC's interoperability tests in every pairing with grpc-go, and grpcurl and ghz (fetches and builds them)
	@cargo build --quiet --package tollfree-interop
	@tests/interop/tools/build $(TARGET_DIR)/interop
	@$(TARGET_DIR)/debug/tollfree-interop suite --tools $(TARGET_DIR)/interop/bin \
		--versions tests/interop/tools/go.mod --document docs/interop.md $(INTEROP_FLAGS)

interop-table: ## Run them, and put the results into docs/interop.md
	@$(MAKE) --no-print-directory interop INTEROP_FLAGS=--write

c-core: ## Have a client of gRPC's C core call a server and a gateway at Unix sockets (fetches grpcio)
	@cargo build --quiet --package tollfree-interop
	@tests/interop/tools/c-core $(TARGET_DIR)/interop $(TARGET_DIR)/debug/tollfree-interop

gateway-outside: ## Run h2spec against plain tonic, our server and a gateway, and gRPC's cases through Envoy (fetches them)
	@cargo build --quiet --package tollfree-interop
	@tests/interop/tools/build $(TARGET_DIR)/interop
	@tests/interop/tools/envoy $(TARGET_DIR)/interop || :
	@$(TARGET_DIR)/debug/tollfree-interop outside --tools $(TARGET_DIR)/interop/bin --versions tests/interop/tools/go.mod \
		--envoy $(TARGET_DIR)/interop/venv/bin/envoy --document docs/outside.md $(OUTSIDE_FLAGS)

formatting:
	@cargo fmt --all --check
	@$(IN_LAB) cargo fmt --check

lint: formatting ## Check formatting and lints, warnings are errors
	@cargo clippy --quiet --workspace --all-targets -- -D warnings

doc: ## Build the documentation, warnings are errors
	@RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items

loom: ## Run the concurrency models of ring and pool in every order that matters
	@RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET_DIR)/loom \
		cargo test --quiet --release --package tollfree-ring --package tollfree-pool --test loom

nightly: ## Run all that `make test` leaves out, or NIGHTLY="soak fuzz" of it; NIGHTLY=list says what there is (three hours)
	@.ci/nightly $(NIGHTLY)

msrv: ## Build what users need with the oldest compiler that is supported (rustup fetches it)
	@version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
		rustup toolchain install $$version --profile minimal >/dev/null 2>&1 || { echo "make msrv: rustup can't install $$version" >&2; exit 1; }; \
		CARGO_TARGET_DIR=$(TARGET_DIR)/msrv cargo +$$version check --quiet --package tollfree --package tollfree-build --package tollfree-cli --package tollfree-gateway && \
		echo "builds with Rust $$version"

# For other systems nothing is linked or run, so no C compiler of theirs is needed: `true` stands for it in build scripts of dependencies.
platforms: ## Check that the libraries compile for macOS, Windows (HTTP/2 alone), musl and Arm, and test HTTP/2 alone (rustup fetches targets)
	@for target in x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl \
			aarch64-unknown-linux-gnu; do \
		rustup target add $$target >/dev/null 2>&1 || { echo "make platforms: rustup can't add $$target" >&2; exit 1; }; \
		CC=true AR=true CARGO_TARGET_DIR=$(TARGET_DIR)/platforms cargo clippy --quiet --target $$target --package tollfree --package tollfree-build \
			--package tollfree-schema --package tollfree-json --features tollfree/tls,tollfree/metrics,tollfree/events -- -D warnings || \
			{ echo "make platforms: see above, $$target" >&2; exit 1; }; done
	@RUSTFLAGS="--cfg tollfree_http2_only" CARGO_TARGET_DIR=$(TARGET_DIR)/http2-only cargo test --quiet --package tollfree-http2-only

# What the emulator has no counterpart of is left out: forks that leave memory behind, seals, limits of memory, `openat2`,
# reads that are told not to wait. All other parts build, and are run on a machine of that kind.
aarch64: ## Build for 64-bit Arm, and run there what qemu-user can (needs gcc-aarch64-linux-gnu, qemu-user; half an hour)
	@for tool in aarch64-linux-gnu-gcc qemu-aarch64; do command -v $$tool >/dev/null || { \
		echo "make aarch64: no $$tool; Debian has it in gcc-aarch64-linux-gnu and qemu-user" >&2; exit 1; }; done
	@rustup target add aarch64-unknown-linux-gnu >/dev/null 2>&1 || { echo "make aarch64: rustup can't add the target" >&2; exit 1; }
	@export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"; \
		export TOLLFREE_TEST_ALONE=all; \
		cross="--quiet --target aarch64-unknown-linux-gnu"; set -e; \
		cargo check $$cross --workspace --all-targets; \
		cargo test $$cross --package tollfree-layout --package tollfree-session --package tollfree-processor \
			--package tollfree-schema --package tollfree-json; \
		cargo test $$cross --package tollfree-ring -- --skip a_million_records_cross; \
		cargo test $$cross --package tollfree-region --lib; \
		cargo test $$cross --package tollfree-region --test suite -- private:: regions::; \
		cargo test $$cross --package tollfree-pool --lib --test suite -- --test-threads=1 \
			--skip forks:: --skip invitations:: --skip kills:: --skip machine:: --skip unread::

miri: ## Run what Miri can of the crates with unsafe code (installs a nightly toolchain; a quarter of an hour)
	@rustup toolchain install nightly --profile minimal --component miri --component rust-src >/dev/null 2>&1 || { \
		echo "make miri: rustup can't install a nightly toolchain with miri" >&2; exit 1; }
	@export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" PROPTEST_CASES=4; set -e; \
		cargo +nightly miri test --quiet --package tollfree-region --lib; \
		cargo +nightly miri test --quiet --package tollfree-processor --lib; \
		cargo +nightly miri test --quiet --package tollfree-ring --lib

# Tests of the simulations run a hundred times as long for each of two thousand mutants: they are optimized a little.
mutants: ## Change the protocol's crates in each way that a test should notice (builds cargo-mutants; hours, SHARD=0/7 a part)
	@cargo mutants --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-mutants || { \
		echo "make mutants: cargo can't install cargo-mutants" >&2; exit 1; }
	@CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=false CARGO_INCREMENTAL=1 cargo mutants --config .ci/mutants.toml \
		--package tollfree-session --package tollfree-connection --package tollfree-layout \
		--output $(TARGET_DIR) --minimum-test-timeout 20 --no-shuffle $(if $(SHARD),--sharding round-robin --shard $(SHARD))

semver: ## Compare the public API with the last release's (builds cargo-semver-checks where it isn't there)
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "make semver: nothing has been released yet"; exit 0; }; \
		cargo semver-checks --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-semver-checks; \
		cargo semver-checks --baseline-rev $$tag --package tollfree --package tollfree-build --package tollfree-pool

deny: ## Check licenses, advisories and sources of dependencies (builds cargo-deny where it isn't there)
	@cargo deny --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-deny
	@cargo deny --workspace check
	@cd lab && cargo deny --workspace --config ../deny.toml check

dist: ## Build the commands as they are released, into target/dist (TARGET=x86_64-unknown-linux-musl)
	@test -n "$(TARGET)" || { echo "make dist: say for what: TARGET=x86_64-unknown-linux-gnu, or another" >&2; exit 1; }
	@rustup target add $(TARGET) >/dev/null 2>&1 || { echo "make dist: rustup can't add $(TARGET)" >&2; exit 1; }
	@cargo build --quiet --locked --release --target $(TARGET) --package tollfree-cli --package tollfree-gateway
	@mkdir -p $(TARGET_DIR)/dist
	@tar -C $(TARGET_DIR)/$(TARGET)/release -czf $(TARGET_DIR)/dist/tollfree-$(TARGET).tar.gz tollfree tollfree-gateway
	@cd $(TARGET_DIR)/dist && sha256sum tollfree-$(TARGET).tar.gz >tollfree-$(TARGET).tar.gz.sha256

deb: ## Build the Debian package of the gateway, into target/dist (needs dpkg-deb)
	@cargo build --quiet --locked --release --package tollfree-cli --package tollfree-gateway
	@deploy/deb/build $(TARGET_DIR)/release $(TARGET_DIR)/dist

image: ## Build the gateway's image, static and empty otherwise (needs docker): IMAGE=tollfree-gateway:dev
	@docker build --quiet --file deploy/image/Dockerfile --tag $(or $(IMAGE),tollfree-gateway:dev) .

deploy-check: ## Check chart, manifests, package and configs (fetches Helm and kubeconform)
	@cargo build --quiet --package tollfree-cli --package tollfree-gateway
	@deploy/check $(TARGET_DIR)/debug
	@deploy/deb/build $(TARGET_DIR)/debug $(TARGET_DIR)/dist-check >/dev/null

# For musl, musl's own compiler driver links, and the unwinder that Rust brings is within: the host's libgcc is made for glibc.
dist-c: ## Build the C library as it is released, into target/dist (TARGET=x86_64-unknown-linux-musl needs musl-gcc)
	@test -n "$(TARGET)" || { echo "make dist-c: say for what: TARGET=x86_64-unknown-linux-gnu, or another" >&2; exit 1; }
	@rustup target add $(TARGET) >/dev/null 2>&1 || { echo "make dist-c: rustup can't add $(TARGET)" >&2; exit 1; }
	@$(if $(findstring musl,$(TARGET)),RUSTFLAGS="-C target-feature=-crt-static") cargo build --quiet --locked --release --target $(TARGET) --package tollfree-capi
	@rm -rf $(TARGET_DIR)/dist/libtollfree-$(TARGET)
	@$(if $(findstring musl,$(TARGET)),CC=musl-gcc UNWINDER="$$(rustc --print sysroot)/lib/rustlib/$(TARGET)/lib/self-contained/libunwind.a") crates/capi/packaging/install $(TARGET_DIR)/$(TARGET)/release/libtollfree_capi.a /usr/local $(TARGET_DIR)/dist/libtollfree-$(TARGET)
	@tar -C $(TARGET_DIR)/dist/libtollfree-$(TARGET)/usr/local -czf $(TARGET_DIR)/dist/libtollfree-$(TARGET).tar.gz include lib share
	@rm -rf $(TARGET_DIR)/dist/libtollfree-$(TARGET)
	@cd $(TARGET_DIR)/dist && sha256sum libtollfree-$(TARGET).tar.gz >libtollfree-$(TARGET).tar.gz.sha256

dist-wheel: ## Build Python's wheel as it is released, into target/dist (TARGET as for dist-c; fetches maturin)
	@test -n "$(TARGET)" || { echo "make dist-wheel: say for what: TARGET=x86_64-unknown-linux-gnu, or another" >&2; exit 1; }
	@rustup target add $(TARGET) >/dev/null 2>&1 || { echo "make dist-wheel: rustup can't add $(TARGET)" >&2; exit 1; }
	@python3 -m venv $(TARGET_DIR)/dist-venv && $(TARGET_DIR)/dist-venv/bin/pip install --quiet --disable-pip-version-check 'maturin>=1.9.4,<2'
	@cd python && $(if $(findstring musl,$(TARGET)),TARGET=$(TARGET) CARGO_TARGET_$(shell echo $(TARGET) | tr a-z- A-Z_)_LINKER=$(CURDIR)/python/musl-linker) CARGO_TARGET_DIR=$(TARGET_DIR) \
		$(TARGET_DIR)/dist-venv/bin/maturin build --quiet --locked --release --target $(TARGET) --out $(TARGET_DIR)/dist

publish: ## Publish to crates.io the packages whose manifests say so (RELEASING.md)
	@packages=$$(sed -n 's/^publish = true$$/&/p;s/^name = "\(tollfree[a-z-]*\)"$$/\1/p' crates/*/Cargo.toml | grep -B1 '^publish' | grep '^tollfree'); \
		cargo publish --locked $$(printf -- '--package %s ' $$packages)

fuzz: ## Fuzz one target, T=name S=seconds (needs a nightly compiler and cargo-fuzz); finds go to fuzz/corpus
	@test -f "fuzz/fuzz_targets/$(T).rs" || { echo "make fuzz: T is one of" $$(ls fuzz/fuzz_targets | sed 's/\.rs$$//') >&2; exit 1; }
	@rm -rf "$(abspath $(TARGET_DIR))/fuzz/corpus/$(T)"
	@cargo run --quiet --package tollfree-fuzzing -- unpack fuzz/corpus/$(T).bin "$(abspath $(TARGET_DIR))/fuzz/corpus/$(T)"
	@CARGO_TARGET_DIR=$(TARGET_DIR)/fuzz cargo +nightly fuzz run --fuzz-dir fuzz $(T) "$(abspath $(TARGET_DIR))/fuzz/corpus/$(T)" -- \
		-max_total_time=$(or $(S),60) -max_len=10000 -rss_limit_mb=3000
	@CARGO_TARGET_DIR=$(TARGET_DIR)/fuzz cargo +nightly fuzz cmin --fuzz-dir fuzz $(T) "$(abspath $(TARGET_DIR))/fuzz/corpus/$(T)"
	@cargo run --quiet --package tollfree-fuzzing -- pack "$(abspath $(TARGET_DIR))/fuzz/corpus/$(T)" fuzz/corpus/$(T).bin
