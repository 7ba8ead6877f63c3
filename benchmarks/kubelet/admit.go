// How long the kubelet's own managers take to admit a pod, on the inputs of benchmarks/shapes.py.
//
//	admit POLICY NODES SHARE FOLDER RUNS
//
// Prints the seconds of each admission, one a line. benchmarks/beside_kubelet.py builds and calls it.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

const (
	cpusPerNode   = 32
	memoryPerNode = 64 << 30
	reserved      = "100Mi"
)

// outside is all that the managers ask of the rest of the kubelet: nothing runs, and everything is ready.
type outside struct{}

func (outside) AddSource(string)                            {}
func (outside) AllReady() bool                              { return true }
func (outside) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }
func (outside) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

func machine(nodes int) *cadvisor.MachineInfo {
	total, cores, perSocket := nodes*cpusPerNode, cpusPerNode/2, max(nodes/2, 1)
	info := &cadvisor.MachineInfo{NumCores: total, NumSockets: 2, MemoryCapacity: uint64(nodes) * memoryPerNode}
	for node := range nodes {
		one := cadvisor.Node{Id: node, Memory: memoryPerNode}
		for core := node * cores; core < (node+1)*cores; core++ {
			threads := []int{core, core + total/2}
			one.Cores = append(one.Cores, cadvisor.Core{Id: core, Threads: threads, SocketID: node / perSocket})
		}
		for other := range nodes {
			distance := uint64(32)
			if node == other {
				distance = 10
			} else if node/perSocket == other/perSocket {
				distance = 12
			}
			one.Distances = append(one.Distances, distance)
		}
		info.Topology = append(info.Topology, one)
	}
	return info
}

func pod(uid string) *v1.Pod {
	amounts := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi")}
	container := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: amounts, Limits: amounts}}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{container}},
		Status:     v1.PodStatus{QOSClass: v1.PodQOSGuaranteed},
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	policy, folder := os.Args[1], os.Args[4]
	nodes, err := strconv.Atoi(os.Args[2])
	must(err)
	share, err := strconv.ParseFloat(os.Args[3], 64)
	must(err)
	runs, err := strconv.Atoi(os.Args[5])
	must(err)
	logger := logr.Discard()
	klog.SetLogger(logger)
	ctx := klog.NewContext(context.Background(), logger)

	info, total := machine(nodes), nodes*cpusPerNode
	kept := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse(reserved)}
	topology, err := topologymanager.NewManager(logger, info.Topology, policy, "container", nil)
	must(err)
	cpus, err := cpumanager.NewManager(
		logger, "static", nil, time.Hour, info, cpuset.New(0, total/2), kept, folder, topology)
	must(err)
	onFirst := []kubeletconfig.MemoryReservation{
		{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(reserved)}}}
	memory, err := memorymanager.NewManager(logger, "Static", info, kept, onFirst, folder, topology)
	must(err)

	var active []*v1.Pod
	pods := func() []*v1.Pod { return active }
	must(cpus.Start(ctx, pods, outside{}, outside{}, outside{}, containermap.NewContainerMap()))
	must(memory.Start(ctx, pods, outside{}, outside{}, outside{}, containermap.NewContainerMap()))
	topology.AddHintProvider(logger, cpus)
	topology.AddHintProvider(logger, memory)
	time.Sleep(100 * time.Millisecond) // the CPU manager's first look at what runs

	admit := func(uid string) time.Duration {
		one := pod(uid)
		active = append(active, one)
		attributes := &lifecycle.PodAdmitAttributes{
			Pod: one, OtherPods: active[:len(active)-1], Operation: lifecycle.AddOperation}
		began := time.Now()
		result := topology.Admit(ctx, attributes)
		took := time.Since(began)
		if !result.Admit {
			must(fmt.Errorf("%s: %s", result.Reason, result.Message))
		}
		container := &one.Spec.Containers[0]
		cpus.AddContainer(logger, one, container, uid)
		memory.AddContainer(logger, one, container, uid)
		topology.AddContainer(logger, one, container, uid)
		return took
	}
	for number := range int(float64(total)*share) / 4 {
		admit(fmt.Sprintf("filler-%d", number))
	}
	for range runs {
		fmt.Println(admit("asked").Seconds())
		must(cpus.RemoveContainer(logger, "asked"))
		must(memory.RemoveContainer(logger, "asked"))
		must(topology.RemoveContainer(logger, "asked"))
		active = active[:len(active)-1]
	}
}
