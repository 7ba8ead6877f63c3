"""A strict reader of Kubernetes manifests: of each kind the fields that are used here, and nothing else.

The API server's own schemas are not in this repository. Every field below was tried against one with strict field
validation; a field that is not here is a slip of the pen, or has yet to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Shape = Any
"""A type, a list of one shape, or a mapping; a key that ends in ``!`` must be there, ``*`` is any name."""

META: Shape = {"name!": str, "namespace": str, "labels": {"*": str}, "annotations": {"*": str}}
SECURITY: Shape = {
    "runAsUser": int,
    "runAsGroup": int,
    "runAsNonRoot": bool,
    "privileged": bool,
    "allowPrivilegeEscalation": bool,
    "readOnlyRootFilesystem": bool,
    "capabilities": {"drop": [str], "add": [str]},
    "seccompProfile": {"type!": str},
}
PROBE: Shape = {
    "httpGet": {"path!": str, "port!": object, "scheme": str},
    "periodSeconds": int,
    "failureThreshold": int,
    "initialDelaySeconds": int,
    "timeoutSeconds": int,
}
CONTAINER: Shape = {
    "name!": str,
    "image!": str,
    "imagePullPolicy": str,
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath!": str}}}],
    "ports": [{"name": str, "containerPort!": int, "protocol": str}],
    "resources!": {"requests": {"*": str}, "limits": {"*": str}},
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "securityContext!": SECURITY,
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool, "mountPropagation": str}],
}
POD: Shape = {
    "serviceAccountName": str,
    "automountServiceAccountToken": bool,
    "enableServiceLinks": bool,
    "hostNetwork": bool,
    "hostPID": bool,
    "priorityClassName": str,
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "nodeSelector": {"*": str},
    "affinity": object,
    "topologySpreadConstraints": object,
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
    "securityContext": object,
    "containers!": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [
        {
            "name!": str,
            "hostPath": {"path!": str, "type": str},
            "configMap": {"name!": str},
            "secret": {"secretName!": str},
            "emptyDir": object,
            "projected": {
                "defaultMode": int,
                "sources!": [
                    {
                        "serviceAccountToken": {"path!": str, "expirationSeconds": int, "audience": str},
                        "configMap": {"name!": str, "items": [{"key!": str, "path!": str}]},
                        "downwardAPI": {"items!": [{"path!": str, "fieldRef": {"fieldPath!": str}}]},
                    }
                ],
            },
        }
    ],
}
TEMPLATE: Shape = {"metadata": {"labels": {"*": str}, "annotations": {"*": str}}, "spec!": POD}
SELECTOR: Shape = {"matchLabels!": {"*": str}}
RULE: Shape = {"apiGroups!": [str], "resources!": [str], "verbs!": [str], "resourceNames": [str]}
SUBJECT: Shape = {"kind!": str, "name!": str, "namespace": str, "apiGroup": str}
JOB: Shape = {"backoffLimit": int, "ttlSecondsAfterFinished": int, "template!": TEMPLATE}

SHAPES: Mapping[tuple[str, str], Shape] = {
    ("v1", "Namespace"): {},
    ("v1", "ServiceAccount"): {"automountServiceAccountToken": bool},
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): {"rules!": [RULE]},
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): {
        "roleRef!": {"apiGroup!": str, "kind!": str, "name!": str},
        "subjects!": [SUBJECT],
    },
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): {
        "spec!": {
            "failurePolicy": str,
            "paramKind": {"apiVersion!": str, "kind!": str},
            "matchConstraints!": {
                "resourceRules!": [
                    {"apiGroups!": [str], "apiVersions!": [str], "operations!": [str], "resources!": [str]}
                ]
            },
            "matchConditions": [{"name!": str, "expression!": str}],
            "variables": [{"name!": str, "expression!": str}],
            "validations!": [{"expression!": str, "message": str}],
        }
    },
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): {
        "spec!": {
            "policyName!": str,
            "validationActions!": [str],
            "paramRef": {"name": str, "selector": object, "parameterNotFoundAction!": str},
        }
    },
    ("apps/v1", "DaemonSet"): {
        "spec!": {
            "selector!": SELECTOR,
            "updateStrategy": {"type": str, "rollingUpdate": {"maxUnavailable": object}},
            "template!": TEMPLATE,
        }
    },
    ("apps/v1", "Deployment"): {"spec!": {"replicas!": int, "selector!": SELECTOR, "template!": TEMPLATE}},
    ("v1", "Service"): {"spec!": {"selector!": {"*": str}, "ports!": [{"name": str, "port!": int, "targetPort": int}]}},
    ("batch/v1", "CronJob"): {"spec!": {"schedule!": str, "concurrencyPolicy": str, "jobTemplate!": {"spec!": JOB}}},
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): {
        "spec!": {
            "group!": str,
            "scope!": str,
            "names!": {"kind!": str, "listKind": str, "plural!": str, "singular": str, "shortNames": [str]},
            "versions!": [
                {
                    "name!": str,
                    "served!": bool,
                    "storage!": bool,
                    "additionalPrinterColumns": [
                        {"name!": str, "type!": str, "jsonPath!": str, "description": str, "priority": int}
                    ],
                    "schema!": {"openAPIV3Schema!": object},
                }
            ],
        }
    },
}


def mistakes(document: object) -> list[str]:
    """Return what is wrong with a manifest, each with its place."""
    if not isinstance(document, dict):
        return ["no mapping"]
    key = str(document.get("apiVersion")), str(document.get("kind"))
    if key not in SHAPES:
        return [f"{key[1]} of {key[0]} is not known here"]
    return list(_check(document, {"apiVersion!": str, "kind!": str, "metadata!": META, **SHAPES[key]}, ""))


def _check(value: object, shape: Shape, place: str) -> Iterator[str]:
    if isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{place}: no list"
            return
        for number, item in enumerate(value):
            yield from _check(item, shape[0], f"{place}[{number}]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{place}: no mapping"
            return
        yield from _check_fields(value, shape, place)
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        yield f"{place}: {value!r} is no {shape.__name__}"


def _check_fields(value: dict[str, Any], shape: dict[str, Shape], place: str) -> Iterator[str]:
    known = {name.rstrip("!"): part for name, part in shape.items()}
    yield from (f"{place}.{name[:-1]}: missing" for name in shape if name.endswith("!") and name[:-1] not in value)
    for name, part in value.items():
        if name not in known and "*" not in known:
            yield f"{place}.{name}: unknown"
        else:
            yield from _check(part, known.get(name, known.get("*")), f"{place}.{name}")
