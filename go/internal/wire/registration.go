package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A Registration is what a process says of itself that attaches to a gateway.
type Registration struct {
	// Process is the same for all backend connections of one server.
	Process           [ProcessIDLen]byte
	BackendConnection uint32
	Group             string
	Services          []string
}

// Encode gives the registration's bytes.
//
// Errors: a name that none has; more services than one process may have.
func (i *Registration) Encode() ([]byte, error) {
	if !isVisible(i.Group, GroupLenMax) {
		return nil, fmt.Errorf("the group %q: a name has 1 to %d visible ASCII characters", i.Group, GroupLenMax)
	}
	if len(i.Services) > ServiceCountMax {
		return nil, fmt.Errorf("%d services, where %d are the most", len(i.Services), ServiceCountMax)
	}
	b := append([]byte(nil), i.Process[:]...)
	b = binary.LittleEndian.AppendUint32(b, i.BackendConnection)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(i.Group)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(i.Services)))
	b = append(b, i.Group...)
	for _, service := range i.Services {
		if !isVisible(service, ServiceLenMax) || strings.Contains(service, "/") {
			return nil, fmt.Errorf("the service %q: a name has 1 to %d visible ASCII characters without /", service, ServiceLenMax)
		}
		b = append(b, byte(len(service)))
		b = append(b, service...)
	}
	if len(b) > RegistrationLenMax {
		return nil, fmt.Errorf("the names of all services make a registration of %d bytes, where %d are the most", len(b), RegistrationLenMax)
	}
	return b, nil
}

// EncodeTarget gives the bytes of what a client's calls by way of a gateway are to reach.
//
// Errors: a text that is no target.
func EncodeTarget(target string) ([]byte, error) {
	if !isVisible(target, TargetLenMax) {
		return nil, fmt.Errorf("the target %q: a target has 1 to %d visible ASCII characters", target, TargetLenMax)
	}
	return []byte(target), nil
}

func isVisible(name string, lenMax int) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= lenMax
}
