package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The records of state.json, by the names that csi-driver-host-path gives them.
type volume struct {
	VolName, VolID, VolPath, NodeID string
	VolSize                         int64
	ParentVolID, ParentSnapID       string
	Attached                        bool
	Staged, Published               []string
}

type snapshot struct {
	Name, Id, VolID, Path string
	CreationTime          time.Time
	SizeBytes             int64
	ReadyToUse            bool
	GroupSnapshotID       string
}

type group struct {
	Name, Id                     string
	SnapshotIDs, SourceVolumeIDs []string
	CreationTime                 time.Time
}

type state struct {
	Volumes        []*volume
	Snapshots      []*snapshot
	GroupSnapshots []*group

	lock sync.Mutex
	dir  string
}

func openState(dir string) (*state, error) {
	s := &state{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return nil, err
	}
	return s, json.Unmarshal(raw, s)
}

// Reads or changes the state. Replaces the file when the change says so and has no error.
func (s *state) use(changes bool, work func() error) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err := work(); err != nil || !changes {
		return err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "state.json")
	if err := os.WriteFile(file+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func find[T any](all []*T, is func(*T) bool) *T {
	for _, one := range all {
		if is(one) {
			return one
		}
	}
	return nil
}

func without[T any](all []*T, is func(*T) bool) []*T {
	left := []*T{}
	for _, one := range all {
		if !is(one) {
			left = append(left, one)
		}
	}
	return left
}

func (s *state) volume(id string) *volume {
	return find(s.Volumes, func(it *volume) bool { return it.VolID == id })
}

func (s *state) snapshot(id string) *snapshot {
	return find(s.Snapshots, func(it *snapshot) bool { return it.Id == id })
}

// Which names and ids have a call under way.
type busy struct {
	lock sync.Mutex
	keys map[string]bool
}

func newBusy() *busy { return &busy{keys: map[string]bool{}} }

// Takes all of the keys, or answers ABORTED.
func (b *busy) take(keys ...string) (func(), error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, key := range keys {
		if b.keys[key] {
			return nil, status.Errorf(codes.Aborted, "a call for %s is under way", key)
		}
	}
	for _, key := range keys {
		b.keys[key] = true
	}
	return func() {
		b.lock.Lock()
		defer b.lock.Unlock()
		for _, key := range keys {
			delete(b.keys, key)
		}
	}, nil
}
