package pool

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/mem"
)

func member(t *testing.T, c *coordinator) *Pool { return memberAt(t, c.address()) }

func memberAt(t *testing.T, address string) *Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p, err := Join(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { isOut(t, p) })
	return p
}

func isOut(t *testing.T, p *Pool) {
	t.Helper()
	select {
	case <-p.Leave():
	case <-time.After(5 * time.Second):
		t.Error("a member does not get out of the pool")
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("it never comes to this: %s", what)
		}
	}
}

// lend makes a ref to a new buffer of n bytes, and gives what holds it.
func lend(t *testing.T, p *Pool, n int) (Ref, mem.Buffer) {
	t.Helper()
	data, buffer, err := p.Buffer(n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = byte(i * 3)
	}
	ref, kept, ok := p.Lend(data)
	buffer.Free()
	if !ok {
		t.Fatal("it was not lent")
	}
	return ref, kept
}

// take takes hold of a ref, whose extent may have to be fetched first.
func take(t *testing.T, p *Pool, ref Ref) mem.Buffer {
	t.Helper()
	var got []mem.Buffer
	eventually(t, "a ref is taken hold of", func() (ok bool) {
		var err error
		got, err = p.Take([]Ref{ref})
		if err != nil && !errors.Is(err, Gone) {
			t.Fatal(err)
		}
		return err == nil
	})
	return got[0]
}

func TestMembersReadWhatTheyLendEachOther(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), descriptors(t)
	t.Run("pool", func(t *testing.T) {
		c := newCoordinator(t)
		writer, reader, third := member(t, c), member(t, c), member(t, c)
		for _, n := range []int{1025, 4096, 100_000, 3_000_000} {
			ref, kept := lend(t, writer, n)
			got := take(t, reader, ref)
			kept.Free()
			if !bytes.Equal(got.ReadOnlyData(), pattern(n)) {
				t.Fatalf("%d other bytes came", n)
			}
			// A part of it goes on to others, and back to its owner.
			part, partKept, ok := reader.Lend(got.ReadOnlyData()[1:n])
			if n > 1025 && !ok {
				t.Fatal("what came is not lent")
			}
			got.Free()
			if !ok {
				continue
			}
			for _, p := range []*Pool{third, writer} {
				if buffer := take(t, p, part); !bytes.Equal(buffer.ReadOnlyData(), pattern(n)[1:]) {
					t.Fatalf("%d other bytes came", n)
				} else {
					buffer.Free()
				}
			}
			partKept.Free()
		}
	})
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "no descriptor is left", func() bool { return descriptorsNow(t) <= descriptors })
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 3)
	}
	return data
}

func descriptors(t *testing.T) int { return descriptorsNow(t) }

func descriptorsNow(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestMemoryIsUsedAgainWhenNobodyHoldsIt(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 60_000)
	held := take(t, reader, ref)
	kept.Free()
	// The extent's first pages are held: another block lies elsewhere.
	second, kept := lend(t, writer, 60_000)
	kept.Free()
	if second.Extent == ref.Extent && second.Page == ref.Page {
		t.Fatal("memory that a reader holds was used again")
	}
	if !bytes.Equal(held.ReadOnlyData(), pattern(60_000)) {
		t.Fatal("held memory has changed")
	}
	held.Free()
	eventually(t, "the first block's pages are used again", func() bool {
		again, kept := lend(t, writer, 60_000)
		kept.Free()
		return again.Extent == ref.Extent && again.Page == ref.Page && again.Generation > ref.Generation
	})
	if _, err := reader.Take([]Ref{ref}); err != Stale {
		t.Errorf("an earlier ref: %v", err)
	}
}

func TestForgedRefsAreRefused(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 8192)
	defer kept.Free()
	take(t, reader, ref).Free()
	for name, wrong := range map[string]struct {
		change func(*Ref)
		fault  Fault
	}{
		"a tag":          {func(r *Ref) { r.Tag++ }, Forged},
		"a longer range": {func(r *Ref) { r.Len++ }, Forged},
		"a page":         {func(r *Ref) { r.Page = 1 << 18 }, Malformed},
		"a pool":         {func(r *Ref) { r.Pool[3]++ }, Malformed},
		"a generation":   {func(r *Ref) { r.Generation++ }, Stale},
	} {
		bad := ref
		wrong.change(&bad)
		for _, p := range []*Pool{reader, writer} {
			if _, err := p.Take([]Ref{ref, bad}); err != wrong.fault {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestAMemberGoesOnWithoutACoordinatorAndComesBack(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 50_000)
	take(t, reader, ref).Free()
	c.stop()
	// What is mapped is read all the same.
	take(t, reader, ref).Free()
	kept.Free()
	c.start()
	eventually(t, "both have come back", func() bool { return c.said(kindResumed) == 2 })
	if extents, present := c.said(kindExtent), c.said(kindPresent); extents < 2 || present != 1 {
		t.Errorf("the new coordinator was told of %d extents, and of %d that are mapped", extents, present)
	}
	ref, kept = lend(t, writer, 500_000)
	take(t, reader, ref).Free()
	kept.Free()
}

func TestADeniedMemberHasNoMemoryUntilItIsGranted(t *testing.T) {
	c := newCoordinator(t)
	p := member(t, c)
	c.deny(true)
	if _, _, err := p.Buffer(5000); err != ErrFull {
		t.Errorf("a buffer was given: %v", err)
	}
	if asked := c.said(kindNeed); asked > 12 {
		t.Errorf("it asked %d times in a second", asked)
	}
	c.deny(false)
	// A process that gets no processor for a second finds none in time.
	eventually(t, "a buffer is given", func() bool {
		_, buffer, err := p.Buffer(5000)
		if err == nil {
			buffer.Free()
		}
		return err == nil
	})
	for _, n := range []int{0, 1024, lenMax + 1} {
		if _, _, err := p.Try(n); err == nil || err == ErrFull {
			t.Errorf("a buffer of %d bytes: %v", n, err)
		}
	}
}

func TestIdleExtentsAreGivenBack(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 50_000)
	held := take(t, reader, ref)
	takeBack := newMessage(kindTakeBack)
	takeBack.Amount = 1 << 30
	c.say(writer.member, takeBack)
	kept.Free()
	time.Sleep(20 * time.Millisecond)
	if n := c.said(kindReturned); n != 0 {
		t.Fatal("an extent that is held was given back")
	}
	held.Free()
	c.say(writer.member, takeBack)
	eventually(t, "the extent is given back, and not mapped any more", func() bool {
		return c.said(kindReturned) == 1 && c.said(kindUnmapped) == 1
	})
	if _, err := reader.Take([]Ref{ref}); err != Gone {
		t.Errorf("a ref of an extent that was given back: %v", err)
	}
}

// What a coordinator passes on instead of an extent is not mapped, and refs to it are out of reach.
func TestWhatIsNoExtentIsNotMapped(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 50_000)
	defer kept.Free()
	shape, _ := ShapeOf(65536)
	other, err := newExtent(c.pool, 77, ref.Extent, shape)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	for name, fd := range map[string]func() int{
		"an eventfd":              func() int { fd, _ := unix.Eventfd(0, unix.EFD_CLOEXEC); return fd },
		"another member's extent": func() int { fd, _ := unix.Dup(other.region.FD()); return fd },
		"memory without its seals": func() int {
			fd, _ := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
			_ = unix.Ftruncate(fd, int64(shape.FileLen()))
			return fd
		},
	} {
		c.mu.Lock()
		c.instead = func() (int, uint64) { return fd(), 65536 }
		c.mu.Unlock()
		before := c.said(kindUnmapped)
		if _, err := reader.Take([]Ref{ref}); err != Short && err != Gone {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+" is refused", func() bool { return c.said(kindUnmapped) > before })
	}
	c.mu.Lock()
	c.instead = nil
	c.mu.Unlock()
	take(t, reader, ref).Free()
}

func TestAMemberThatHoldsSomethingLeavesLater(t *testing.T) {
	c := newCoordinator(t)
	writer, reader := member(t, c), member(t, c)
	ref, kept := lend(t, writer, 50_000)
	held := take(t, reader, ref)
	out := reader.Leave()
	kept.Free()
	if isOut(t, writer); !bytes.Equal(held.ReadOnlyData(), pattern(50_000)) {
		t.Error("memory of a member that has left is gone")
	}
	select {
	case <-out:
		t.Fatal("it is out while it holds memory")
	case <-time.After(20 * time.Millisecond):
	}
	if _, err := reader.Take([]Ref{ref}); err != Gone {
		t.Errorf("it takes hold of more: %v", err)
	}
	held.Free()
	<-out
	if _, _, err := reader.Try(5000); err != ErrLeft {
		t.Errorf("it still has memory: %v", err)
	}
}
