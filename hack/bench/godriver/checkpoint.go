package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// checkpoint is the path of the one file that holds all claims. Like those of the usual drivers it is read and checked
// in each call, and rewritten as a whole: the file is the truth, not the memory of a process.
type checkpoint string

type claims map[types.UID][]kubeletplugin.Device

type content struct {
	Checksum uint32          `json:"checksum"`
	Claims   json.RawMessage `json:"claims"`
}

func (c checkpoint) load() (claims, error) {
	prepared := claims{}
	data, err := os.ReadFile(string(c))
	if errors.Is(err, os.ErrNotExist) {
		return prepared, nil
	}
	if err != nil {
		return nil, err
	}
	var stored content
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(stored.Claims) != stored.Checksum {
		return nil, fmt.Errorf("%s is damaged", c)
	}
	return prepared, json.Unmarshal(stored.Claims, &prepared)
}

// save replaces the file; it must survive a power failure, so it is synced.
func (c checkpoint) save(prepared claims) error {
	encoded, err := json.Marshal(prepared)
	if err != nil {
		return err
	}
	data, err := json.Marshal(content{Checksum: crc32.ChecksumIEEE(encoded), Claims: encoded})
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(c)), ".tmp-*")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), string(c))
}
