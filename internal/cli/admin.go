package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) keysCmd() *cobra.Command {
	keys := &cobra.Command{Use: "keys", Short: "API keys", RunE: group}
	var in client.KeyInput
	create := &cobra.Command{
		Use:     "create",
		Short:   "Make an API key, and print it once",
		Example: "  surehook keys create --name shop --tenant acme --permission events:write,read",
		Args:    exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			k, err := api.CreateKey(ctx, in)
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(k)
			}
			return c.out.fields("id", k.ID, "name", k.Name, "tenant", deref(k.TenantID), "permissions", strings.Join(k.Permissions, ", "), "key, shown this once", k.Key)
		}),
	}
	create.Flags().StringVar(&in.Name, "name", "", "what it is for")
	create.Flags().StringVar(&in.TenantID, "tenant", "", "bind it to a tenant (default: a platform key)")
	create.Flags().StringSliceVar(&in.Permissions, "permission", nil, "events:write, webhooks:manage, read, admin (required)")
	_ = create.MarkFlagRequired("permission") // it is declared above
	all := &cobra.Command{
		Use: "list", Short: "List keys", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Keys(ctx), 0, []string{"ID", "NAME", "ENDS IN", "TENANT", "PERMISSIONS", "CREATED", "REVOKED"}, func(k client.Key) []cell {
				return []cell{text(k.ID), optional(k.Name), text(k.Hint), optional(deref(k.TenantID)), text(strings.Join(k.Permissions, ",")), stamp(&k.CreatedAt), stamp(k.RevokedAt)}
			})
		}),
	}
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key; it is refused within seconds", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.RevokeKey(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "revoked")
		}),
	}
	keys.AddCommand(create, all, revoke)
	return keys
}

func (c *cmd) tenantsCmd() *cobra.Command {
	tenants := &cobra.Command{Use: "tenants", Short: "Tenants, and the partners that they belong to", RunE: group}
	show := func(t client.Tenant) error {
		if c.json {
			return c.out.value(t)
		}
		return c.out.fields("id", t.ID, "name", printable(t.Name), "partner", deref(t.PartnerID), "created", t.CreatedAt)
	}
	var name, partner string
	put := &cobra.Command{
		Use: "put ID", Short: "Name a tenant, or change it", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			t, err := api.PutTenant(ctx, args[0], name, partner)
			if err != nil {
				return err
			}
			return show(t)
		}),
	}
	put.Flags().StringVar(&name, "name", "", "name")
	put.Flags().StringVar(&partner, "partner", "", "partner that it belongs to")
	all := &cobra.Command{
		Use: "list", Short: "List tenants", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Tenants(ctx), 0, []string{"ID", "NAME", "PARTNER", "CREATED"}, func(t client.Tenant) []cell {
				return []cell{text(t.ID), optional(printable(t.Name)), optional(deref(t.PartnerID)), stamp(&t.CreatedAt)}
			})
		}),
	}
	remove := &cobra.Command{
		Use: "delete ID", Short: "Forget a tenant's name; its endpoints and events stay", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteTenant(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
	tenants.AddCommand(put, all, remove)
	return tenants
}

func (c *cmd) eventTypesCmd() *cobra.Command {
	types := &cobra.Command{Use: "event-types", Short: "The catalogue of event types", RunE: group}
	show := func(t client.EventType) error {
		if c.json {
			return c.out.value(t)
		}
		validated := ""
		if t.Validate {
			validated = "yes"
		}
		return c.out.fields("name", t.Name, "description", printable(t.Description), "example", string(t.Example), "schema", string(t.Schema), "validated", validated, "updated", t.UpdatedAt)
	}
	get := &cobra.Command{
		Use: "get NAME", Short: "Show an event type", Args: exactly("NAME"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			t, err := api.EventType(ctx, args[0])
			if err != nil {
				return err
			}
			return show(t)
		}),
	}
	all := &cobra.Command{
		Use: "list", Short: "List event types", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			found, err := api.EventTypes(ctx)
			if err != nil {
				return err
			}
			each := func(yield func(client.EventType, error) bool) {
				for _, t := range found {
					if !yield(t, nil) {
						return
					}
				}
			}
			return list(c, each, 0, []string{"NAME", "VALIDATED", "DESCRIPTION"}, func(t client.EventType) []cell {
				validated := "–"
				if t.Validate {
					validated = "yes"
				}
				return []cell{text(t.Name), text(validated), optional(printable(t.Description))}
			})
		}),
	}
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Take an event type out of the catalogue", Args: exactly("NAME"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteEventType(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
	types.AddCommand(c.typePutCmd(show), get, all, remove)
	return types
}

func (c *cmd) typePutCmd(show func(client.EventType) error) *cobra.Command {
	var t client.EventType
	var example, schema string
	put := &cobra.Command{
		Use:     "put NAME",
		Short:   "Describe an event type",
		Long:    "Describe an event type. With --validate, published data that the schema refuses is\nrefused.",
		Example: "  surehook event-types put order.paid --description 'An order was paid' --schema @order.json --validate",
		Args:    exactly("NAME"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			t.Name = args[0]
			for _, x := range []struct {
				from string
				to   *[]byte
			}{{example, (*[]byte)(&t.Example)}, {schema, (*[]byte)(&t.Schema)}} {
				if x.from == "" {
					continue
				}
				raw, err := c.input(x.from)
				if err != nil {
					return fail(exitUsage, "", "%w", err)
				}
				*x.to = raw
			}
			made, err := api.PutEventType(ctx, t)
			if err != nil {
				return err
			}
			return show(made)
		}),
	}
	put.Flags().StringVar(&t.Description, "description", "", "what it tells")
	put.Flags().StringVar(&example, "example", "", "an example of its data: JSON, @FILE, or -")
	put.Flags().StringVar(&schema, "schema", "", "JSON Schema of its data: JSON, @FILE, or -")
	put.Flags().BoolVar(&t.Validate, "validate", false, "refuse data that the schema refuses")
	return put
}
