#!/bin/sh
# Builds C++ protobuf's side of `tollfree-lab bench codec`, one program a schema: build.sh OUT_DIR
#
# Uses protoc and libprotobuf as installed (Debian: protobuf-compiler, libprotobuf-dev), or as unpacked below
# PROTOBUF_ROOT.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
schemas=$here/../../../bench/schemas
mkdir -p "$1"
out=$(cd "$1" && pwd)
root=${PROTOBUF_ROOT:-}
protoc=${PROTOC:-${root:+$root/usr/bin/}protoc}
if [ -n "$root" ]; then
    libs=$root/usr/lib/$(${CXX:-g++} -dumpmachine)
    [ -d "$libs" ] || libs=$root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
    export LD_LIBRARY_PATH="$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    flags="-I$root/usr/include -L$libs"
else
    flags=
fi
if ! command -v "$protoc" >/dev/null; then
    echo "build.sh: no $protoc; install protobuf-compiler and libprotobuf-dev, or set PROTOBUF_ROOT" >&2
    exit 1
fi

# build NAME PROTO HEADER TYPE
build() {
    dir=$out/$1.gen
    mkdir -p "$dir"
    if [ "$2" = benchmark.proto ]; then
        "$protoc" --descriptor_set_in="$schemas/$1.fds.binpb" --cpp_out="$dir" "$2"
        sources=$dir/benchmark.pb.cc
    else
        sources=
    fi
    # shellcheck disable=SC2086 # flags and sources are lists
    ${CXX:-g++} -std=c++17 -O2 -DNDEBUG -I"$dir" $flags "-DCODEC_HEADER=\"$3\"" "-DCODEC_TYPE=$4" \
        -o "$out/codec-$1" "$here/codec.cc" $sources -Wl,-Bstatic -lprotobuf -Wl,-Bdynamic -lz -pthread
    echo "built codec-$1"
}

for name in bench0 bench1 bench2 bench3 bench4 bench5; do
    first=$("$protoc" --decode_raw <"$schemas/$name.fds.binpb" | sed -n 's/^    1: "\(M[0-9]*\)"$/\1/p' | head -n 1)
    build "$name" benchmark.proto benchmark.pb.h "hyperprotobench::${first:-M1}"
done
build descriptor descriptor.proto google/protobuf/descriptor.pb.h google::protobuf::FileDescriptorSet
