package flat_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tollfree/tollfree/go/flat"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
	"github.com/tollfree/tollfree/go/internal/region"
)

// forged changes the word that is before in an object, once.
func forged(t *testing.T, object []byte, before, after [8]byte) []byte {
	t.Helper()
	if bytes.Count(object, before[:]) != 1 {
		t.Fatalf("%x stands %d times in the object", before, bytes.Count(object, before[:]))
	}
	return bytes.Replace(object, before[:], after[:], 1)
}

func span(off, n int) (b [8]byte) {
	binary.LittleEndian.PutUint32(b[:], uint32(off))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	return b
}

// An object whose parts overlap could be far longer to a reader than it is: each byte counts once.
func TestPartsCountOnce(t *testing.T) {
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
		b.SetParts([][]byte{bytes.Repeat([]byte("a"), 50), bytes.Repeat([]byte("b"), 50), bytes.Repeat([]byte("c"), 50)})
	})
	if err != nil {
		t.Fatal(err)
	}
	y, object := o.Flat().Type(), o.Flat().Bytes()
	at := bytes.Index(object, []byte("aaaa"))
	// Two bytes in common are no harm where the object has gaps enough; all of it three times is.
	if _, err := y.Verify(forged(t, object, span(at+50, 50), span(at, 50))); err != nil {
		t.Errorf("the same length elsewhere: %v", err)
	}
	if _, err := y.Verify(forged(t, object, span(at, 50), span(at, 150))); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("longer together than the object: %v", err)
	}
}

// A record that contains itself ends with an error.
func TestARecordThatContainsItself(t *testing.T) {
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) { b.MakeInner().MakeInner().SetNumber(1) })
	if err != nil {
		t.Fatal(err)
	}
	object := bytes.Clone(o.Flat().Bytes())
	root := binary.LittleEndian.Uint32(object[12:])
	inner := root + 0x28 // The slot of Cargo.inner.
	binary.LittleEndian.PutUint32(object[inner:], root)
	if _, err := o.Flat().Type().Verify(object); err == nil {
		t.Error("it is taken")
	}
}

// Records nest 100 deep below the root, and no deeper; so do messages.
func TestDepths(t *testing.T) {
	build := func(deep int) flat.Object {
		o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
			for range deep {
				b = b.MakeInner()
			}
			b.SetNumber(1)
		})
		if err != nil {
			t.Fatal(err)
		}
		return o.Flat()
	}
	for deep, ok := range map[int]bool{0: true, 100: true, 101: false} {
		o := build(deep)
		if _, err := o.Type().Verify(o.Bytes()); (err == nil) != ok {
			t.Errorf("an object %d deep: %v", deep, err)
		}
		message, err := o.Protobuf()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Type().Decode(message, 1<<20); (err == nil) != ok {
			t.Errorf("a message %d deep: %v", deep, err)
		}
	}
}

// An object that would be too long is an error, whatever makes it so, and nothing is left half made.
func TestObjectsThatAreTooLong(t *testing.T) {
	long := make([]byte, 3<<20)
	for name, fill := range map[string]func(b pb.CargoBuilder){
		"bytes": func(b pb.CargoBuilder) { b.SetBody(long); b.SetRaw(long); b.SetText("behind") },
		"list":  func(b pb.CargoBuilder) { b.SetNumbers(make([]uint64, 1<<20)); b.MakeInner().SetText("behind") },
		"blobs": func(b pb.CargoBuilder) { b.SetParts([][]byte{long, long}) },
		"deep": func(b pb.CargoBuilder) {
			for range 100_000 {
				b = b.MakeInner()
			}
			b.SetNumber(1)
		},
	} {
		if _, err := pb.BuildCargo(fill); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) { b.SetBody(long) })
	if err != nil {
		t.Fatal(err)
	}
	message, _ := o.Flat().Protobuf()
	if _, err := o.Flat().Type().Decode(message, 1<<20); err == nil {
		t.Error("a message is decoded to more than allowed")
	}
}

// What a builder has set can be set anew, and taken back.
func TestFieldsAreSetAnew(t *testing.T) {
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
		b.SetText("first")
		b.SetText("second")
		b.SetNumber(4)
		b.SetNumber(0)
		b.SetParts([][]byte{{1}})
		b.SetParts(nil)
		b.MakeInner().SetNumber(1)
		b.MakeInner().SetText("new")
		b.SetNumbers([]uint64{1, 2})
		b.SetNumbers([]uint64{3})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Flat().Type().Verify(o.Flat().Bytes()); err != nil {
		t.Error(err)
	}
	r := o.Read()
	if r.GetText() != "second" || r.GetNumber() != 0 || r.GetParts().Len() != 0 || r.GetInner().GetNumber() != 0 || r.GetInner().GetText() != "new" ||
		r.GetNumbers().Len() != 1 || r.GetNumbers().At(0) != 3 {
		t.Errorf("%q, %d, %d parts, %+v", r.GetText(), r.GetNumber(), r.GetParts().Len(), r.GetInner())
	}
}

// A shared object gives strings that stay when another process changes its memory, and makes an encoding of what it still is, or an error.
func TestSharedObjectsThatChange(t *testing.T) {
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
		b.SetText("text")
		b.SetParts([][]byte{[]byte("part"), []byte("more")})
		b.MakeInner().MakeInner().SetText("inner")
	})
	if err != nil {
		t.Fatal(err)
	}
	y, good := o.Flat().Type(), o.Flat().Bytes()
	memory := bytes.Clone(good)
	shared, err := y.VerifyShared(memory)
	if err != nil || !shared.IsShared() {
		t.Fatal(err)
	}
	reader := pb.CargoObjectOf(shared).Read()
	text, inner := reader.GetText(), reader.GetInner().GetInner().GetText()
	clear(memory)
	if text != "text" || inner != "inner" {
		t.Errorf("the strings are %q and %q", text, inner)
	}
	refused := 0
	for at := range good {
		copy(memory, good)
		if shared, err = y.VerifyShared(memory); err != nil {
			t.Fatal(err)
		}
		memory[at] ^= 0xff
		if _, err := shared.Protobuf(); err != nil {
			refused++
		}
	}
	if refused < 80 {
		t.Errorf("only %d of %d changed bytes are noticed", refused, len(good))
	}
	copy(memory, good)
	if shared, err = y.VerifyShared(append(memory, "behind"...)[:len(good)]); err != nil || cap(shared.Bytes()) != len(good) {
		t.Errorf("readers can reach %d bytes behind the object: %v", cap(shared.Bytes())-len(good), err)
	}
	memory[0] = 0
	if o, err := y.VerifyShared(memory); err == nil || o.IsShared() {
		t.Error("no object is taken for one")
	}
}

// Another process can write while an object is verified: the verifier takes each word once, so it never leaves the object.
func TestObjectsThatChangeWhileTheyAreVerified(t *testing.T) {
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
		b.SetText("text")
		b.SetNumbers([]uint64{1, 2, 3})
		b.SetParts([][]byte{[]byte("part"), []byte("more")})
		b.MakeInner().MakeInner().SetText("inner")
	})
	if err != nil {
		t.Fatal(err)
	}
	y, good := o.Flat().Type(), o.Flat().Bytes()
	// The race detector does not look at such memory.
	own, err := region.CreatePrivate(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Unmap()
	memory := own.Memory()[:len(good)]
	copy(memory, good)
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		random, last := rand.New(rand.NewPCG(1, 2)), uint64(0)
		defer func() { _ = last }()
		for {
			select {
			case <-over:
				return
			default:
			}
			// Words that verifiers follow are 4 bytes long, and often small.
			at := random.IntN(len(good)/4) * 4
			binary.LittleEndian.PutUint32(memory[at:], random.Uint32()>>random.IntN(32))
			// Each state lasts for a part of the time that verifying takes.
			for range random.IntN(100) {
				last = random.Uint64()
			}
			copy(memory[at:], good[at:at+4])
			for range random.IntN(100) {
				last = random.Uint64()
			}
		}
	})
	sound, refused := 0, 0
	for range 200_000 {
		shared, err := y.VerifyShared(memory)
		if err == nil {
			_, err = shared.Protobuf()
		}
		if err == nil {
			sound++
		} else {
			refused++
		}
	}
	close(over)
	writer.Wait()
	if sound == 0 || refused == 0 {
		t.Errorf("%d were sound, and %d refused: nothing changed meanwhile", sound, refused)
	}
}
