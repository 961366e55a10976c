// Command godriver is the yardstick of the benchmarks: a minimal DRA driver on the Go helper that works the way the
// usual Go drivers do. It keeps one checkpoint file for all claims and writes one CDI spec per claim.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type options struct {
	driver, node, kubeconfig, registry, plugins, cdi string
	devices                                          int
	qps                                              float64
	burst                                            int
}

func parse() options {
	var o options
	flag.StringVar(&o.driver, "driver", "go.bench.example.com", "driver name")
	flag.StringVar(&o.node, "node-name", "", "name of the node")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig")
	flag.StringVar(&o.registry, "registry", "/var/lib/kubelet/plugins_registry", "registration directory of the kubelet")
	flag.StringVar(&o.plugins, "plugins", "/var/lib/kubelet/plugins", "plugin directory of the kubelet")
	flag.StringVar(&o.cdi, "cdi", "/var/run/cdi", "CDI directory")
	flag.IntVar(&o.devices, "devices", 8, "number of devices to publish")
	flag.Float64Var(&o.qps, "qps", 0, "client requests per second (0: the client's default)")
	flag.IntVar(&o.burst, "burst", 0, "client burst (0: the client's default)")
	flag.Parse()
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	client, err := newClient(o)
	if err != nil {
		return err
	}
	folder := filepath.Join(o.plugins, o.driver)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	d, err := newDriver(o, filepath.Join(folder, "checkpoint.json"))
	if err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(o.node),
		kubeletplugin.DriverName(o.driver),
		kubeletplugin.RegistrarDirectoryPath(o.registry),
		kubeletplugin.PluginDataDirectoryPath(folder),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, pool(o)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func newClient(o options) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(o.qps), o.burst
	return kubernetes.NewForConfig(config)
}

func pool(o options) resourceslice.DriverResources {
	devices := make([]resourceapi.Device, 0, o.devices)
	for i := range o.devices {
		model, numa := "bench", int64(i%2)
		devices = append(devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"model":                           {StringValue: &model},
				"resource.kubernetes.io/numaNode": {IntValue: &numa},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		o.node: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}
}
