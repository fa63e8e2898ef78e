package spec

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Vectors are the bytes that a file of the test vectors has under one of keys, wherever they stand, in order.
//
// Errors: there are none, or it can't be read.
func Vectors(file string, keys ...string) ([][]byte, error) {
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../spec/vectors", file))
	if err != nil {
		return nil, err
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	var found [][]byte
	take := func(value any) {
		if text, is := value.(string); is {
			if bytes, err := hex.DecodeString(text); err == nil {
				found = append(found, bytes)
			}
		}
	}
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, one := range value {
				walk(one)
			}
		case map[string]any:
			names := make([]string, 0, len(value))
			for name := range value {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				switch list, isList := value[name].([]any); {
				case slices.Contains(keys, name) && isList:
					for _, one := range list {
						take(one)
					}
				case slices.Contains(keys, name):
					take(value[name])
				}
				walk(value[name])
			}
		}
	}
	walk(all)
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no bytes under %v", file, keys)
	}
	return found, nil
}
