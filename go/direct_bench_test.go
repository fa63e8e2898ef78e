package tollfree_test

import (
	"context"
	"testing"

	tollfree "github.com/tollfree/tollfree/go"
	direct "github.com/tollfree/tollfree/go/internal/directproto"
)

func benchmarkDirect(b *testing.B, options ...tollfree.ServerOption) {
	client := directPair(tollfree.NewSharedMemory(b), &directService{}, options...)
	ctx, request := context.Background(), &direct.Request{Data: make([]byte, 60)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Unary(ctx, request); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDirect64(b *testing.B) { benchmarkDirect(b) }

func BenchmarkDirect64Inline(b *testing.B) {
	benchmarkDirect(b, tollfree.Inline(direct.Test_Unary_FullMethodName))
}
