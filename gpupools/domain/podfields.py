"""The fields that Jobs and Pods have in Kubernetes, with their types, in a compact form. Facts only.

A type is a Go one (string, int32, int64, bool, []byte), Quantity, IntOrString, Time, the name of a struct below,
``[]X`` a list of X, or ``map[X]`` a map from text to X. Parts that GPU users do not meet are ``any`` or ``object``:
not looked into. Source: the API reference of Kubernetes (batch/v1 Job, core/v1 Pod).
"""

from __future__ import annotations

from collections.abc import Mapping

_TEXT: Mapping[str, str] = {
    "ObjectMeta": """
        name string, generateName string, namespace string, selfLink string, uid string, resourceVersion string,
        generation int64, creationTimestamp Time, deletionTimestamp Time, deletionGracePeriodSeconds int64,
        labels map[string], annotations map[string], ownerReferences []OwnerReference, finalizers []string,
        managedFields []any
    """,
    "OwnerReference": """
        apiVersion string, kind string, name string, uid string, controller bool, blockOwnerDeletion bool
    """,
    "LocalObjectReference": "name string",
    "LabelSelector": "matchLabels map[string], matchExpressions []LabelSelectorRequirement",
    "LabelSelectorRequirement": "key string, operator string, values []string",
    "StatusCondition": """
        type string, status string, observedGeneration int64, lastProbeTime Time, lastHeartbeatTime Time,
        lastTransitionTime Time, reason string, message string
    """,
    "PodStatus": """
        observedGeneration int64, phase string, conditions []StatusCondition, message string, reason string,
        nominatedNodeName string, hostIP string, hostIPs []object, podIP string, podIPs []PodIP, startTime Time,
        initContainerStatuses []ContainerStatus, containerStatuses []ContainerStatus, qosClass string,
        ephemeralContainerStatuses []ContainerStatus, resize string, resourceClaimStatuses []any,
        extendedResourceClaimStatus object, allocatedResources map[Quantity], resources ResourceRequirements
    """,
    "PodIP": "ip string",
    "ContainerStatus": """
        name string, state ContainerState, lastState ContainerState, ready bool, restartCount int32, image string,
        imageID string, containerID string, started bool, allocatedResources map[Quantity],
        resources ResourceRequirements, volumeMounts []any, user object, allocatedResourcesStatus []any,
        stopSignal string
    """,
    "ContainerState": """
        waiting ContainerStateWaiting, running ContainerStateRunning, terminated ContainerStateTerminated
    """,
    "ContainerStateWaiting": "reason string, message string",
    "ContainerStateRunning": "startedAt Time",
    "ContainerStateTerminated": """
        exitCode int32, signal int32, reason string, message string, startedAt Time, finishedAt Time,
        containerID string
    """,
    "JobStatus": """
        conditions []StatusCondition, startTime Time, completionTime Time, active int32, terminating int32,
        succeeded int32, failed int32, completedIndexes string, failedIndexes string, uncountedTerminatedPods object,
        ready int32
    """,
    "Pod": "metadata ObjectMeta, spec PodSpec, status PodStatus",
    "PodTemplateSpec": "metadata ObjectMeta, spec PodSpec",
    "PodSpec": """
        volumes []Volume, initContainers []Container, containers []Container, ephemeralContainers []any,
        restartPolicy string, terminationGracePeriodSeconds int64, activeDeadlineSeconds int64, dnsPolicy string,
        nodeSelector map[string], serviceAccountName string, serviceAccount string, automountServiceAccountToken bool,
        nodeName string, hostNetwork bool, hostPID bool, hostIPC bool, shareProcessNamespace bool,
        securityContext PodSecurityContext, imagePullSecrets []LocalObjectReference, hostname string,
        subdomain string, affinity Affinity, schedulerName string, tolerations []Toleration, hostAliases []HostAlias,
        priorityClassName string, priority int32, dnsConfig any, readinessGates []PodReadinessGate,
        runtimeClassName string, enableServiceLinks bool, preemptionPolicy string, overhead map[Quantity],
        topologySpreadConstraints []TopologySpreadConstraint, setHostnameAsFQDN bool, os PodOS, hostUsers bool,
        schedulingGates []PodSchedulingGate, resourceClaims []PodResourceClaim, resources ResourceRequirements,
        hostnameOverride string
    """,
    "PodReadinessGate": "conditionType string",
    "PodSchedulingGate": "name string",
    "PodOS": "name string",
    "PodResourceClaim": "name string, resourceClaimName string, resourceClaimTemplateName string",
    "HostAlias": "ip string, hostnames []string",
    "TopologySpreadConstraint": """
        maxSkew int32, topologyKey string, whenUnsatisfiable string, labelSelector LabelSelector, minDomains int32,
        nodeAffinityPolicy string, nodeTaintsPolicy string, matchLabelKeys []string
    """,
    "PodSecurityContext": """
        seLinuxOptions any, windowsOptions any, runAsUser int64, runAsGroup int64, runAsNonRoot bool,
        supplementalGroups []int64, supplementalGroupsPolicy string, fsGroup int64, sysctls []any,
        fsGroupChangePolicy string, seccompProfile any, appArmorProfile any, seLinuxChangePolicy string
    """,
    "SecurityContext": """
        capabilities Capabilities, privileged bool, seLinuxOptions any, windowsOptions any, runAsUser int64,
        runAsGroup int64, runAsNonRoot bool, readOnlyRootFilesystem bool, allowPrivilegeEscalation bool,
        procMount string, seccompProfile any, appArmorProfile any
    """,
    "Capabilities": "add []string, drop []string",
    "Container": """
        name string, image string, command []string, args []string, workingDir string, ports []ContainerPort,
        envFrom []EnvFromSource, env []EnvVar, resources ResourceRequirements, resizePolicy []ContainerResizePolicy,
        restartPolicy string, restartPolicyRules []any, volumeMounts []VolumeMount, volumeDevices []VolumeDevice,
        livenessProbe any, readinessProbe any, startupProbe any, lifecycle any, terminationMessagePath string,
        terminationMessagePolicy string, imagePullPolicy string, securityContext SecurityContext, stdin bool,
        stdinOnce bool, tty bool
    """,
    "ContainerPort": "name string, hostPort int32, containerPort int32, protocol string, hostIP string",
    "ContainerResizePolicy": "resourceName string, restartPolicy string",
    "EnvFromSource": "prefix string, configMapRef any, secretRef any",
    "EnvVar": "name string, value string, valueFrom EnvVarSource",
    "EnvVarSource": "fieldRef any, resourceFieldRef any, configMapKeyRef any, secretKeyRef any, fileKeyRef any",
    "ResourceRequirements": "limits map[Quantity], requests map[Quantity], claims []ResourceClaim",
    "ResourceClaim": "name string, request string",
    "VolumeMount": """
        name string, readOnly bool, recursiveReadOnly string, mountPath string, subPath string,
        mountPropagation string, subPathExpr string
    """,
    "VolumeDevice": "name string, devicePath string",
    "Volume": """
        name string, hostPath HostPathVolumeSource, emptyDir EmptyDirVolumeSource, gcePersistentDisk any,
        awsElasticBlockStore any, gitRepo any, secret SecretVolumeSource, nfs NFSVolumeSource, iscsi any,
        glusterfs any, persistentVolumeClaim PersistentVolumeClaimVolumeSource, rbd any, flexVolume any, cinder any,
        cephfs any, flocker any, downwardAPI any, fc any, azureFile any, configMap ConfigMapVolumeSource,
        vsphereVolume any, quobyte any, azureDisk any, photonPersistentDisk any, projected any, portworxVolume any,
        scaleIO any, storageos any, csi any, ephemeral any, image any
    """,
    "HostPathVolumeSource": "path string, type string",
    "EmptyDirVolumeSource": "medium string, sizeLimit Quantity",
    "SecretVolumeSource": "secretName string, items []KeyToPath, defaultMode int32, optional bool",
    "ConfigMapVolumeSource": "name string, items []KeyToPath, defaultMode int32, optional bool",
    "KeyToPath": "key string, path string, mode int32",
    "NFSVolumeSource": "server string, path string, readOnly bool",
    "PersistentVolumeClaimVolumeSource": "claimName string, readOnly bool",
    "Toleration": "key string, operator string, value string, effect string, tolerationSeconds int64",
    "Affinity": "nodeAffinity NodeAffinity, podAffinity PodAffinity, podAntiAffinity PodAffinity",
    "NodeAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution NodeSelector,
        preferredDuringSchedulingIgnoredDuringExecution []PreferredSchedulingTerm
    """,
    "NodeSelector": "nodeSelectorTerms []NodeSelectorTerm",
    "NodeSelectorTerm": "matchExpressions []NodeSelectorRequirement, matchFields []NodeSelectorRequirement",
    "NodeSelectorRequirement": "key string, operator string, values []string",
    "PreferredSchedulingTerm": "weight int32, preference NodeSelectorTerm",
    "PodAffinity": """
        requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm,
        preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm
    """,
    "WeightedPodAffinityTerm": "weight int32, podAffinityTerm PodAffinityTerm",
    "PodAffinityTerm": """
        labelSelector LabelSelector, namespaces []string, topologyKey string, namespaceSelector LabelSelector,
        matchLabelKeys []string, mismatchLabelKeys []string
    """,
    "Job": "metadata ObjectMeta, spec JobSpec, status JobStatus",
    "JobSpec": """
        parallelism int32, completions int32, activeDeadlineSeconds int64, podFailurePolicy PodFailurePolicy,
        successPolicy SuccessPolicy,
        backoffLimit int32, backoffLimitPerIndex int32, maxFailedIndexes int32, selector LabelSelector,
        manualSelector bool, template PodTemplateSpec, ttlSecondsAfterFinished int32, completionMode string,
        suspend bool, podReplacementPolicy string, managedBy string
    """,
    "PodFailurePolicy": "rules []PodFailurePolicyRule",
    "PodFailurePolicyRule": """
        action string, onExitCodes PodFailurePolicyOnExitCodesRequirement,
        onPodConditions []PodFailurePolicyOnPodConditionsPattern
    """,
    "PodFailurePolicyOnExitCodesRequirement": "containerName string, operator string, values []int32",
    "PodFailurePolicyOnPodConditionsPattern": "type string, status string",
    "SuccessPolicy": "rules []SuccessPolicyRule",
    "SuccessPolicyRule": "succeededIndexes string, succeededCount int32",
}


def parsed(texts: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Read structs written as above: struct -> field -> type."""
    return {struct: dict(_field(entry) for entry in entries.split(",")) for struct, entries in texts.items()}


def _field(entry: str) -> tuple[str, str]:
    name, type_ = entry.split()
    return name, type_


# Struct -> field -> type.
STRUCTS: Mapping[str, Mapping[str, str]] = parsed(_TEXT)
