package wire

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/tollfree/tollfree/go/internal/spec"
)

// compare checks constants against a table of the specification, and that the table has each of them.
func compare(t *testing.T, heading, first string, nameAt, valueAt int, ours map[string]uint64) {
	t.Helper()
	rows, err := spec.Table(heading, first)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range rows[1:] {
		want, ok := ours[row[nameAt]]
		if !ok {
			continue
		}
		found++
		if got, err := strconv.ParseUint(row[valueAt], 0, 64); err != nil || got != want {
			t.Errorf("%s: the document says %s, the code %d", row[nameAt], row[valueAt], want)
		}
	}
	if found != len(ours) {
		t.Errorf("%s: %d of %d constants are in the document", heading, found, len(ours))
	}
}

func TestConstantsAreTheDocuments(t *testing.T) {
	compare(t, "## 18. Limits", "constant", 0, 1, map[string]uint64{
		"LINE_LEN": LineLen, "PAGE_LEN": PageLen, "RING_LEN_MIN": RingLenMin, "RING_LEN_MAX": RingLenMax,
		"REGION_LEN_MAX": RegionLenMax, "AREA_LEN_MIN": AreaLenMin, "MESSAGE_WINDOW_MAX": MessageWindowMax, "STREAM_WINDOW_MAX": StreamWindowMax, "AREA_LEN_MAX": AreaLenMax, "HELLO_LEN": HelloLen,
		"HELLO_TEXT_MAX": HelloTextMax, "METADATA_LEN_MAX": MetadataLenMax, "METHOD_PATH_LEN_MAX": MethodPathLenMax,
		"METHOD_COUNT_MAX": MethodCountMax, "METHOD_PATHS_LEN_MAX": MethodPathsLenMax, "MESSAGE_LEN_MAX": MessageLenMax,
		"NAME_LEN_MAX": NameLenMax, "VALUE_LEN_MAX": ValueLenMax, "CHUNK_CHARGE": ChunkCharge,
	})
	compare(t, "### Control page", "constant", 0, 1, map[string]uint64{
		"CONSUMED_OFF": ConsumedOff, "WAITING_OFF": WaitingOff, "CPU_OFF": CPUOff, "LOAD_OFF": LoadOff,
		"CPU_UNKNOWN": CPUUnknown, "RING_OFF": RingOff,
	})
	compare(t, "### Frame head", "event", 0, 1, map[string]uint64{
		"HEADERS": Headers, "MESSAGE": Message, "HALF_CLOSE": HalfClose, "TRAILERS": Trailers, "CANCEL": Cancel,
		"CREDIT": Credit, "DRAIN": Drain, "CONTROL": Control,
	})
	compare(t, "### Frame head", "flag", 0, 1, map[string]uint64{
		"FIRST": First, "LAST": Last, "COMPRESSED": Compressed, "IN_AREA": InArea, "NAMES_METHOD": NamesMethod, "BATCH": Batch,
		"HAS_DEADLINE": HasDeadline, "REFUSED": Refused, "OBJECT": Object, "KNOWN_FLAGS": KnownFlags,
	})
	compare(t, "### Frame head", "control code", 0, 1, map[string]uint64{
		"AREA_OFFER": AreaOffer, "AREA_ACCEPT": AreaAccept, "AREA_REFUSE": AreaRefuse, "AREA_DROP": AreaDrop, "CLOSE": Close,
		"OBJECTS": Objects,
	})
	compare(t, "### Frame head", "constant", 0, 1, map[string]uint64{
		"FRAME_HEAD_LEN": FrameHeadLen, "DEADLINE_LEN": DeadlineLen, "AREA_RANGE_LEN": AreaRangeLen,
	})
	compare(t, "### Handshake message", "kind", 0, 1, map[string]uint64{
		"HELLO": KindHello, "WELCOME": KindWelcome, "REFUSAL": KindRefusal, "ATTACH": KindAttach, "VIA": KindVia,
	})
	compare(t, "### Handshake message", "reason", 0, 1, map[string]uint64{
		"VERSION": ReasonVersion, "FEATURE": ReasonFeature, "USER": ReasonUser, "REGION": ReasonRegion, "BUSY": ReasonBusy,
		"MALFORMED": ReasonMalformed, "TOKEN": ReasonToken,
	})
	compare(t, "## 20. Versions", "constant", 0, 1, map[string]uint64{
		"VERSION_MIN": Version, "VERSION_MAX": Version, "LOAD": FeatureLoad, "UPGRADE": FeatureUpgrade,
	})
	names, err := spec.Table("### Static names", "index")
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range names[1:] {
		if row[0] != strconv.Itoa(i+1) || row[1] != StaticNames[i+1] {
			t.Errorf("name %s: the document says %s, the code %s", row[0], row[1], StaticNames[i+1])
		}
	}
	if len(names) != len(StaticNames) {
		t.Errorf("the document has %d names, the code %d", len(names)-1, len(StaticNames)-1)
	}
}

func TestMetadataComeBackAsTheyWent(t *testing.T) {
	md := metadata.MD{
		"authorization": {"one", "two", ""}, "x-own": {"v"}, "raw-bin": {"\x00\xff\x10", ""},
		"connection": {"close"}, ":path": {"/a"}, "content-type": {"application/grpc", "application/grpc+own"},
	}
	block, err := AppendMetadata(nil, md)
	if err != nil || CheckBlock(block) != nil {
		t.Fatal(err, CheckBlock(block))
	}
	want := metadata.MD{
		"authorization": {"one", "two", ""}, "x-own": {"v"}, "raw-bin": {"\x00\xff\x10", ""}, "content-type": {"application/grpc+own"},
	}
	if got := DecodeMetadata(block, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%v came of %v", got, want)
	}
	for _, bad := range []metadata.MD{{"Upper": {"v"}}, {"a b": {"v"}}, {"x": {"a\nb"}}, {strings.Repeat("n", 256): {"v"}}, {"x": {strings.Repeat("v", 65536)}}} {
		if _, err := AppendMetadata(nil, bad); err == nil {
			t.Errorf("%.40v was sent", bad)
		}
	}
}

func TestWhatHTTPWouldNotAllowIsLeftOut(t *testing.T) {
	var block []byte
	for _, pair := range [][2]string{{"ok", "v"}, {"Not", "v"}, {"x", "a\x01"}, {"padded-bin", "AAE="}, {"y-bin", "*"}, {"te", "trailers"}} {
		block, _ = AppendPair(block, pair[0], pair[1])
	}
	want := metadata.MD{"ok": {"v"}, "padded-bin": {"\x00\x01"}}
	if got := DecodeMetadata(block, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%v was taken, not %v", got, want)
	}
}

func TestStatusWordsArePercentEncoded(t *testing.T) {
	for words, encoded := range map[string]string{"plain words": "plain words", "50% ü\n": "50%25 %C3%BC%0A", "": ""} {
		if got := EncodeMessage(words); got != encoded || DecodeMessage(got) != words {
			t.Errorf("%q became %q and %q", words, got, DecodeMessage(got))
		}
	}
	for _, odd := range []string{"%", "%4", "%zz", "100%"} {
		if got := DecodeMessage(odd); got != odd {
			t.Errorf("%q became %q", odd, got)
		}
	}
}

func TestTextsAreCutAndShown(t *testing.T) {
	if got := CutText("aü", 2); got != "a" {
		t.Errorf("cut to %q", got)
	}
	if got := ShownText([]byte("a\x1b\xffz")); got != "a?\ufffdz" {
		t.Errorf("shown as %q", got)
	}
}

// vectors are bytes of the test vectors, to begin with.
func vectors(f *testing.F, file string, keys ...string) [][]byte {
	f.Helper()
	found, err := spec.Vectors(file, keys...)
	if err != nil {
		f.Fatal(err)
	}
	return found
}

func FuzzHead(f *testing.F) {
	f.Add(make([]byte, FrameHeadLen), 24, true)
	for _, frame := range vectors(f, "frames.json", "hex", "before", "heard", "said") {
		f.Add(frame, len(frame), true)
		f.Add(frame, len(frame), false)
	}
	f.Fuzz(func(t *testing.T, bytes []byte, recordLen int, client bool) {
		if len(bytes) < FrameHeadLen || recordLen < 0 {
			return
		}
		raw := [FrameHeadLen]byte(bytes[:FrameHeadLen])
		head := DecodeHead(&raw)
		if head.Encode() != raw {
			t.Fatalf("%x became %x", raw, head.Encode())
		}
		role := Server
		if client {
			role = Client
		}
		if head.Check(role, recordLen, true) == nil && head.ChunkAt() > recordLen {
			t.Fatalf("a frame beyond its record was let pass: %+v", head)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := Hello{Kind: KindHello, VersionMin: 1, VersionMax: 1, RingLen: RingLenMax, RegionLen: RingOff + RingLenMax,
		StreamWindow: WindowMin, SessionWindow: WindowMin, MetadataLenMax: MetadataLenMin, Text: "fuzz"}
	bytes := h.Encode()
	f.Add(bytes[:])
	for _, message := range vectors(f, "handshake.json", "hex") {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if len(bytes) < HelloLen {
			return
		}
		raw := [HelloLen]byte(bytes[:HelloLen])
		h := DecodeHello(&raw)
		if h.CheckFirst(KindHello) == nil && h.CheckSizes(true) == nil {
			if RingOff+h.RingLen > h.RegionLen || h.RegionLen > RegionLenMax || h.RingLen%LineLen != 0 {
				t.Fatalf("let pass: %+v", h)
			}
		}
		again := h.Encode()
		if back := DecodeHello(&again); back.Kind != h.Kind || back.RingLen != h.RingLen || len(back.Text) > HelloTextMax {
			t.Fatalf("%+v became %+v", h, back)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	block, _ := AppendMetadata(nil, metadata.MD{"authorization": {"v"}, "x": {"y"}, "z-bin": {"\x00"}})
	f.Add(block)
	for _, frame := range vectors(f, "frames.json", "hex", "heard") {
		if len(frame) < FrameHeadLen {
			continue
		}
		raw := [FrameHeadLen]byte(frame[:FrameHeadLen])
		head := DecodeHead(&raw)
		if from := head.HeadersAt(); from+int(head.HeadersLen) <= len(frame) {
			f.Add(frame[from : from+int(head.HeadersLen)])
		}
		if from := head.TrailersAt(); from+int(head.TrailersLen) <= len(frame) {
			f.Add(frame[from : from+int(head.TrailersLen)])
		}
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		kept := bytes.Clone(block)
		err := CheckBlock(block)
		md := DecodeMetadata(block, nil)
		if !bytes.Equal(kept, block) {
			t.Fatal("the block was changed")
		}
		if err != nil {
			return
		}
		again, err := AppendMetadata(nil, md)
		if err != nil || !reflect.DeepEqual(DecodeMetadata(again, nil), md) && len(md) > 0 && md["content-type"] == nil {
			t.Fatalf("%v did not come back: %v", md, err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 7}, uint32(1), false)
	f.Fuzz(func(t *testing.T, batch []byte, count uint32, objects bool) {
		if BatchFits(batch, count, objects) && uint64(count)*BatchPrefixLen > uint64(len(batch)) {
			t.Fatalf("%d messages in %d bytes", count, len(batch))
		}
	})
}

func FuzzSegmented(f *testing.F) {
	var ref [RefLen]byte
	ref[RefLen-8] = 9
	f.Add(AppendSegmented(nil, 12, []byte("abc"), []SegmentEntry{{Before: 2, Ref: ref}}))
	f.Fuzz(func(t *testing.T, carried []byte) {
		segmented, err := ParseSegmented(carried)
		if err != nil {
			return
		}
		before := 0
		for _, entry := range segmented.Entries {
			before += int(entry.Before)
		}
		if before > len(segmented.Inline) || int(segmented.Len) != len(segmented.Inline)+int(segmented.RefBytes) {
			t.Fatalf("%+v does not add up", segmented)
		}
		// Reserved bytes are ignored.
		if again, err := ParseSegmented(AppendSegmented(nil, segmented.Len, segmented.Inline, segmented.Entries)); err != nil || again.Len != segmented.Len || len(again.Entries) != len(segmented.Entries) {
			t.Fatalf("%+v became %+v: %v", segmented, again, err)
		}
	})
}

func TestAnRegistrationIsAsSpecified(t *testing.T) {
	registration := Registration{Process: [16]byte{15: 7}, BackendConnection: 2, Group: "ab", Services: []string{"p.S", "q"}}
	got, err := registration.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := append(make([]byte, 15), "\x07\x02\x00\x00\x00\x02\x00\x02\x00ab\x03p.S\x01q"...)
	if !bytes.Equal(got, want) {
		t.Errorf("%x, not %x", got, want)
	}
	for _, wrong := range []Registration{
		{Group: ""}, {Group: "a b"}, {Group: strings.Repeat("a", 65)}, {Group: "a", Services: []string{"a/b"}}, {Group: "a", Services: []string{""}},
		{Group: "a", Services: make([]string, 257)}, {Group: "a", Services: slices.Repeat([]string{strings.Repeat("s", 255)}, 40)},
	} {
		if _, err := wrong.Encode(); err == nil {
			t.Errorf("%.60v is taken", wrong)
		}
	}
}
