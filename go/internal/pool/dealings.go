package pool

import (
	"os"
	"strconv"
	"time"

	"github.com/tollfree/tollfree/go/internal/region"
	"github.com/tollfree/tollfree/go/internal/rendezvous"
	"github.com/tollfree/tollfree/go/internal/system"
)

// hear does what the coordinator's message is about. Its descriptors are hear's.
func (a *agent) hear(message *Message, fds []int) {
	p := a.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	key := extentKey{message.Member, message.Extent}
	switch message.Kind {
	case kindMapped:
		a.mapped(key, message.Amount, fds)
		return
	case kindRow:
		a.watch(key, message.Len, fds)
		return
	}
	closeAll(fds)
	switch message.Kind {
	case kindGrant:
		a.make(message.Amount)
	case kindDeny:
		p.asking, p.denied = false, time.Now()
	case kindExtentOK:
		a.confirmed(message.Extent)
	case kindWatched:
		if arrival := a.arriving[key]; arrival != nil && arrival.row == message.Len {
			delete(a.arriving, key)
			p.imports[key] = arrival.imported
			p.finish(key, None)
		}
	case kindMapFailed:
		a.unarrive(key)
		fault := Gone
		if message.Reason != reasonGone && message.Reason != reasonBusy {
			fault = Short
		}
		p.finish(key, fault)
	case kindWanted:
		a.give(message.Member, message.Extent)
	case kindTakeBack:
		a.giveBack(message.Amount)
	case kindDrop:
		a.dropped(key)
	case kindLeft:
		a.left(message.Member, false)
	}
}

func (a *agent) unarrive(key extentKey) {
	if arrival := a.arriving[key]; arrival != nil {
		delete(a.arriving, key)
		arrival.imported.close()
	}
}

// make makes an extent of what was granted.
func (a *agent) make(amount uint64) {
	p := a.pool
	shape, ok := ShapeOf(amount)
	if ok && p.lastExtent < 1<<32-1 {
		extent, err := newExtent(p.id, p.member, p.lastExtent+1, shape)
		if err == nil {
			p.lastExtent++
			p.making = append(p.making, extent)
			a.announce(extent)
			return
		}
	}
	// This machine has no memory for it.
	message := newMessage(kindReturned)
	message.Amount = amount
	a.say(message)
	p.asking, p.denied = false, time.Now()
}

// confirmed takes an extent into use that others can map now.
func (a *agent) confirmed(index uint32) {
	p := a.pool
	for i, extent := range p.making {
		if extent.index == index {
			p.making = append(p.making[:i], p.making[i+1:]...)
			p.own = append(p.own, extent)
			p.asking, p.denied = false, time.Time{}
			p.hasGrown()
			return
		}
	}
}

// ownOf is an extent of this member's by its number, or nil.
func (a *agent) ownOf(index uint32) *ownExtent {
	for _, extent := range a.pool.own {
		if extent.index == index {
			return extent
		}
	}
	return nil
}

// give gives a reader the descriptor of an extent.
func (a *agent) give(reader, index uint32) {
	refuse := func(reason uint32) {
		message := newMessage(kindNotHad).about(reader, index)
		message.Reason = reason
		a.say(message)
	}
	extent := a.ownOf(index)
	if extent == nil {
		refuse(reasonGone)
		return
	}
	fd, err := system.FcntlInt(uintptr(extent.region.FD()), system.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		refuse(reasonBusy)
		return
	}
	a.send(newMessage(kindGive).about(reader, index), fd)
}

// mapped maps an extent that has come, and has its owner look at a row of this member's.
func (a *agent) mapped(key extentKey, dataLen uint64, fds []int) {
	p := a.pool
	if a.arriving[key] != nil || p.imports[key] != nil {
		closeAll(fds)
		return
	}
	fail := func(fault Fault) {
		a.say(newMessage(kindUnmapped).about(key.member, key.extent))
		p.finish(key, fault)
	}
	if len(fds) != 2 || !isProcess(fds[1]) {
		closeAll(fds)
		fail(Short)
		return
	}
	arrived, err := newImported(p.id, key, dataLen, fds[0])
	if err != nil {
		closeAll(fds[1:])
		fail(Short)
		return
	}
	a.live(key.member, fds[1])
	fd, err := system.FcntlInt(uintptr(arrived.row.FD()), system.F_DUPFD_CLOEXEC, 0)
	arrived.row.Sent()
	if err != nil {
		arrived.close()
		fail(Short)
		return
	}
	a.lastRow++
	message := newMessage(kindRow).about(key.member, key.extent)
	message.Len, message.Amount = a.lastRow, uint64(os.Getpid())
	a.arriving[key] = &arrival{arrived, a.lastRow}
	a.send(message, fd)
}

// watch looks at a reader's row from now on.
func (a *agent) watch(key extentKey, number uint64, fds []int) {
	answer := newMessage(kindNotHad).about(key.member, key.extent)
	answer.Reason = reasonBusy
	extent := a.ownOf(key.extent)
	switch {
	case extent == nil:
		closeAll(fds)
		answer.Reason = reasonGone
	case len(fds) != 2 || !isProcess(fds[1]):
		closeAll(fds)
	default:
		memory, err := region.Map(fds[0], extent.shape.RowLen())
		if err != nil {
			closeAll(fds[1:])
			break
		}
		a.live(key.member, fds[1])
		extent.rows = append(extent.rows, &row{key.member, memory})
		answer = newMessage(kindRowOK).about(key.member, key.extent)
		answer.Len = number
	}
	a.say(answer)
}

// giveBack gives up extents that nothing is in, up to so many bytes.
func (a *agent) giveBack(most uint64) {
	p := a.pool
	p.reuse()
	kept := p.own[:0]
	for _, extent := range p.own {
		n := uint64(extent.shape.DataLen())
		if !extent.idle() || n > most {
			kept = append(kept, extent)
			continue
		}
		most -= n
		message := newMessage(kindReturned).about(0, extent.index)
		message.Amount = n
		a.say(message)
		extent.close()
	}
	clear(p.own[len(kept):])
	p.own = kept
}

// dropped is called of an extent that is not to be had any more.
func (a *agent) dropped(key extentKey) {
	a.unarrive(key)
	if m := a.pool.imports[key]; m != nil {
		a.pool.part(m)
	}
	a.pool.finish(key, Gone)
}

// left is called of a member that has left, or whose process has ended: only then none of its holds counts.
func (a *agent) left(member uint32, ended bool) {
	p := a.pool
	rows := false
	for _, extent := range p.own {
		rows = extent.forget(member, ended) || rows
	}
	for _, keys := range [][]extentKey{keysOf(p.imports, member), keysOf(a.arriving, member)} {
		for _, key := range keys {
			a.dropped(key)
		}
	}
	if life := a.lives[member]; life != nil && !rows {
		delete(a.lives, member)
		_ = life.Close()
	}
	p.hasGrown()
}

func keysOf[V any](all map[extentKey]V, member uint32) (keys []extentKey) {
	for key := range all {
		if key.member == member {
			keys = append(keys, key)
		}
	}
	return keys
}

// live watches a member's process, by a descriptor that is the watch's from now on.
func (a *agent) live(member uint32, pidfd int) {
	if a.lives[member] != nil || system.SetNonblock(pidfd, true) != nil {
		system.Close(pidfd)
		return
	}
	life := os.NewFile(uintptr(pidfd), "pidfd")
	a.lives[member] = life
	go func() {
		if !rendezvous.AwaitEnd(life) {
			return
		}
		a.pool.mu.Lock()
		defer a.pool.mu.Unlock()
		if a.lives[member] == life {
			a.left(member, true)
		}
	}()
}

// isProcess says whether a descriptor that has come is a process's, by a link that no file system answers for.
func isProcess(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && name == "anon_inode:[pidfd]"
}
