package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

const class = "claim"

// driver prepares claims: CDI spec, then checkpoint, one claim after the other, as the usual Go drivers do.
type driver struct {
	options
	checkpoint checkpoint
	cache      *cdi.Cache
	mutex      sync.Mutex
}

func newDriver(o options, path string) (*driver, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(o.cdi))
	if err != nil {
		return nil, err
	}
	return &driver{options: o, checkpoint: checkpoint(path), cache: cache}, nil
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	prepared, err := d.checkpoint.load()
	if err != nil {
		return nil, err
	}
	if devices, ok := prepared[claim.UID]; ok {
		return devices, nil
	}
	settings, err := d.settings(claim.Status.Allocation.Devices.Config)
	if err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.driver {
			continue
		}
		devices = append(devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{fmt.Sprintf("%s/%s=%s-%s", vendor(d.driver), class, claim.UID, result.Device)},
		})
	}
	if err := d.writeSpec(claim.UID, devices, settings); err != nil {
		return nil, err
	}
	prepared[claim.UID] = devices
	return devices, d.checkpoint.save(prepared)
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = d.unprepare(claim.UID)
	}
	return results, nil
}

func (d *driver) unprepare(uid types.UID) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	prepared, err := d.checkpoint.load()
	if err != nil {
		return err
	}
	if _, ok := prepared[uid]; !ok {
		return nil
	}
	if err := d.cache.RemoveSpec(d.specName(uid)); err != nil {
		return err
	}
	delete(prepared, uid)
	return d.checkpoint.save(prepared)
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintln(os.Stderr, message, err)
}

func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// parameters are what a claim may ask of a device.
type parameters struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	PowerLimitWatts int    `json:"powerLimitWatts"`
}

// settings decodes the parameters of a claim strictly, as variables for its containers.
func (d *driver) settings(configs []resourceapi.DeviceAllocationConfiguration) ([]string, error) {
	var env []string
	for _, config := range configs {
		if config.Opaque == nil || config.Opaque.Driver != d.driver {
			continue
		}
		var wanted parameters
		decoder := json.NewDecoder(bytes.NewReader(config.Opaque.Parameters.Raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&wanted); err != nil {
			return nil, fmt.Errorf("parameters: %w", err)
		}
		env = append(env, fmt.Sprintf("BENCH_POWER_LIMIT_WATTS=%d", wanted.PowerLimitWatts))
	}
	return env, nil
}

// writeSpec writes the spec of one claim, with the library that the usual drivers use.
func (d *driver) writeSpec(uid types.UID, devices []kubeletplugin.Device, settings []string) error {
	spec := &specs.Spec{Kind: vendor(d.driver) + "/" + class}
	for _, device := range devices {
		edits := specs.ContainerEdits{Env: append([]string{"BENCH_DEVICE=" + device.DeviceName}, settings...)}
		name := fmt.Sprintf("%s-%s", uid, device.DeviceName)
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: edits})
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return err
	}
	spec.Version = version
	return d.cache.WriteSpec(spec, d.specName(uid))
}

func (d *driver) specName(uid types.UID) string {
	return cdi.GenerateTransientSpecName(vendor(d.driver), class, string(uid))
}

func vendor(driver string) string {
	return "k8s." + driver
}
