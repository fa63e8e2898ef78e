package pool

import (
	"encoding/binary"
	"fmt"
)

// MessageLen is the length of each message between a member and the coordinator.
const MessageLen = 80

// messageMagic begins each.
const messageMagic = "TOLLPOOL"

// Kinds of messages, spec/pool.md, section 6.
const (
	kindJoin      = 1
	kindWelcome   = 2
	kindRefusal   = 3
	kindNeed      = 4
	kindGrant     = 5
	kindDeny      = 6
	kindExtent    = 7
	kindExtentOK  = 8
	kindMap       = 9
	kindMapped    = 10
	kindRow       = 11
	kindRowOK     = 12
	kindNotHad    = 13
	kindWatched   = 14
	kindMapFailed = 15
	kindTakeBack  = 17
	kindReturned  = 18
	kindDrop      = 19
	kindUnmapped  = 20
	kindPresent   = 21
	kindResumed   = 22
	kindWanted    = 23
	kindGive      = 24
	kindLeave     = 25
	kindLeft      = 26
)

// Reasons.
const (
	reasonGone = 1
	reasonBusy = 6
)

// reasonWords are what the specification says of each reason, from 1 on.
var reasonWords = [...]string{
	1: "there is no such member or extent", 2: "the member's quota is used up", 3: "the pool has no more memory",
	4: "the coordinator keeps another pool", 5: "it speaks another version", 6: "it is busy; try later",
	7: "only processes of its user are let in", 8: "the message made no sense to it", 9: "the kernel does not let it watch this process",
	10: "the pool is for processes that were invited",
}

// wordsOf says why a coordinator has refused.
func wordsOf(reason uint32) string {
	if int(reason) < len(reasonWords) && reasonWords[reason] != "" {
		return reasonWords[reason]
	}
	return fmt.Sprintf("reason %d", reason)
}

// Message is what a member and the coordinator say to each other.
type Message struct {
	Magic          [8]byte
	Kind           uint32
	Member, Extent uint32
	Reason         uint32
	Amount, Len    uint64
	Pool           [idLen]byte
	Version        uint32
	Secret         [idLen]byte
}

func newMessage(kind uint32) Message {
	m := Message{Kind: kind, Version: Version}
	copy(m.Magic[:], messageMagic)
	return m
}

// about names an extent, or only a member.
func (m Message) about(member, extent uint32) Message {
	m.Member, m.Extent = member, extent
	return m
}

func (m *Message) encode() []byte {
	b := make([]byte, MessageLen)
	le := binary.LittleEndian
	copy(b, m.Magic[:])
	le.PutUint32(b[8:], m.Kind)
	le.PutUint32(b[12:], m.Member)
	le.PutUint32(b[16:], m.Extent)
	le.PutUint32(b[20:], m.Reason)
	le.PutUint64(b[24:], m.Amount)
	le.PutUint64(b[32:], m.Len)
	copy(b[40:], m.Pool[:])
	le.PutUint32(b[56:], m.Version)
	copy(b[64:], m.Secret[:])
	return b
}

// DecodeMessage takes the fields out of a private copy of a message.
func DecodeMessage(b *[MessageLen]byte) (m Message) {
	le := binary.LittleEndian
	copy(m.Magic[:], b[:])
	m.Kind, m.Member, m.Extent, m.Reason = le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	m.Amount, m.Len = le.Uint64(b[24:]), le.Uint64(b[32:])
	copy(m.Pool[:], b[40:])
	m.Version = le.Uint32(b[56:])
	copy(m.Secret[:], b[64:])
	return m
}
