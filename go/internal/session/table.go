package session

// slotCount is for how many streams there is a place that needs no map; a power of two.
const slotCount = 16

// A table finds streams by their ids, which are consecutive: those under way at one time mostly differ in their lowest bits.
type table struct {
	slots  [slotCount]*Stream
	others map[uint64]*Stream
	count  int
}

func (t *table) get(id uint64) *Stream {
	if st := t.slots[id%slotCount]; st != nil && st.id == id {
		return st
	}
	return t.others[id]
}

func (t *table) add(st *Stream) {
	t.count++
	if slot := &t.slots[st.id%slotCount]; *slot == nil {
		*slot = st
		return
	}
	if t.others == nil {
		t.others = map[uint64]*Stream{}
	}
	t.others[st.id] = st
}

// remove takes a stream out, if it is in.
func (t *table) remove(st *Stream) {
	if slot := &t.slots[st.id%slotCount]; *slot == st {
		*slot = nil
		t.count--
	} else if t.others[st.id] == st {
		delete(t.others, st.id)
		t.count--
	}
}

// each calls do with all streams, and do may remove its stream.
func (t *table) each(do func(*Stream)) {
	for _, st := range t.slots {
		if st != nil {
			do(st)
		}
	}
	for _, st := range t.others {
		do(st)
	}
}
