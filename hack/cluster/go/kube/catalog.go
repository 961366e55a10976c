package main

import (
	"encoding/json"
	"sort"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/controlplane"
)

// A gate is one feature gate as the components know it. The launcher chooses and checks gates with this, so that no
// list of them has to be kept by hand.
type gate struct {
	Name    string   `json:"name"`
	Stage   string   `json:"stage"`
	Default bool     `json:"default"`
	Locked  bool     `json:"locked"`
	Needs   []string `json:"needs"`
}

// An api is one group version the API server can serve.
type api struct {
	Version string `json:"version"`
	Default bool   `json:"default"`
}

type catalog struct {
	Gates []gate `json:"gates"`
	APIs  []api  `json:"apis"`
}

func newCatalogCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kube-catalog",
		Short: "Print every feature gate and API version of this binary as JSON",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return json.NewEncoder(command.OutOrStdout()).Encode(catalog{Gates: gates(), APIs: apis()})
		},
	}
}

func gates() []gate {
	registry := utilfeature.DefaultMutableFeatureGate
	needs := registry.Dependencies()
	all := []gate{}
	for name, spec := range registry.GetAll() {
		all = append(all, gate{
			Name:    string(name),
			Stage:   stage(spec),
			Default: spec.Default,
			Locked:  spec.LockToDefault,
			Needs:   sorted(needs[name]),
		})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// stage spells GA out: the registry's own word for it is the empty string.
func stage(spec featuregate.FeatureSpec) string {
	if spec.PreRelease == featuregate.GA {
		return "GA"
	}
	return string(spec.PreRelease)
}

func sorted(features []featuregate.Feature) []string {
	names := []string{}
	for _, feature := range features {
		names = append(names, string(feature))
	}
	sort.Strings(names)
	return names
}

func apis() []api {
	all := []api{}
	for version, enabled := range controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs {
		all = append(all, api{Version: version.String(), Default: enabled})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Version < all[j].Version })
	return all
}
